// All runs of the folder: search, columns to sort by, which are chosen.
import { board, choose, go, onChange, runColour } from "/main.js";
import { h, clear, table, number, bytes, ms, empty } from "/dom.js";

const LEAD = "Runs that are ticked are drawn on the pages Scalars, Compare and Parallel view. A press on a name opens the run.";

export function show(place) {
  const list = h("div"), count = h("span", { class: "lead", role: "status" });
  const search = h("input", { type: "search", placeholder: "name, model, state, setting=value", "aria-label": "Search runs", size: 32, oninput: () => draw() });
  const visible = () => board.runs.filter((run) => matches(run, search.value.trim().toLowerCase()));
  const draw = () => {
    const runs = visible();
    count.textContent = `${runs.length} of ${board.runs.length} runs, ${board.selected.size} ticked${board.more ? "; there are more than are shown" : ""}`;
    clear(list, runs.length ? runTable(runs) : empty("No run matches", "The search looks at names, models, states and settings.", ""));
  };
  clear(place, h("p", { class: "lead" }, LEAD),
    h("div", { class: "bar" }, search, h("button", { onclick: () => choose(visible().map((run) => run.id)) }, "tick these"),
      h("button", { onclick: () => choose([]) }, "tick none"), count), list);
  draw();
  return onChange(draw);
}

// Every word must be in a name, a model, a state, or be setting=value.
function matches(run, words) {
  if (!words) return true;
  const text = [run.name, run.model, run.state].join(" ").toLowerCase();
  const settings = Object.entries(run.settings ?? {}).map(([key, value]) => `${key}=${value}`.toLowerCase());
  return words.split(/\s+/).every((word) => text.includes(word) || (word.includes("=") && settings.some((s) => s.includes(word))));
}

export const METRICS = (runs) => [...new Set(runs.flatMap((run) => Object.keys(run.metrics ?? {})))];

function tick(run) {
  return h("input", { type: "checkbox", checked: board.selected.has(run.id), "aria-label": `draw ${run.name}`, onclick: (event) => {
    event.stopPropagation();
    const next = new Set(board.selected);
    if (event.target.checked) next.add(run.id);
    else next.delete(run.id);
    choose(next);
  } });
}

function name(run) {
  return h("span", {}, h("i", { class: "swatch", style: { background: runColour(run.id) } }),
    h("a", { href: `#/lineage?run=${run.id}`, onclick: (event) => { event.preventDefault(); go("lineage", { focus: run.id }); } }, run.name),
    run.problem && h("span", { class: "tag bad", title: run.problem }, " damaged"));
}

function runTable(runs) {
  const copied = (run) => (run.copies ? run.copies.to_device_bytes_per_step + run.copies.to_host_bytes_per_step : null);
  return h("div", { class: "card" }, table([
    { name: "drawn", plain: true, value: () => 0, show: tick },
    { name: "run", value: (run) => run.name, show: name },
    { name: "state", value: (run) => run.state, show: (run) => h("span", { class: `tag ${run.state}` }, run.state) },
    { name: "model", value: (run) => run.model },
    { name: "steps", value: (run) => run.steps, number: true },
    { name: "loss", value: (run) => run.loss, number: true },
    ...METRICS(runs).slice(0, 4).map((metric) => ({ name: metric, value: (run) => run.metrics?.[metric], number: true })),
    { name: "step", value: (run) => run.step_ms?.median, number: true, show: (run) => ms(run.step_ms?.median) },
    { name: "samples/s", value: (run) => run.samples_per_s, number: true, show: (run) => number(run.samples_per_s, 3) },
    { name: "copied a step", value: copied, number: true, show: (run) => bytes(copied(run), true) },
    { name: "seed", value: (run) => run.seed, number: true },
    { name: "begun", value: (run) => run.started, show: (run) => (run.started ? h("span", { title: run.started }, new Date(run.started).toLocaleString("sv").slice(5, 16)) : "–") },
  ], runs, { label: "Runs" }));
}
