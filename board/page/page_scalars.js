// Curves of the chosen runs, one chart per tag.
import { get } from "/api.js";
import { chart } from "/chart.js";
import { chosenRuns, onChange, runColour } from "/main.js";
import { h, clear, empty } from "/dom.js";

const MOST = 24; // charts at a time: the rest is behind the search
const settings = { smoothing: 0.6, log: false, axis: "step", search: "" };

export async function show(place) {
  const runs = chosenRuns().slice(0, 24), list = h("div", { class: "cards" }), note = h("p", { class: "lead", role: "status" });
  if (!runs.length) {
    clear(place, empty("No run is ticked", "Tick runs on the page Runs; the newest eight are drawn at first."));
    return null;
  }
  let charts = [], turn = 0, drawn = "";

  // `keep`: charts stay, with what is new, where there are the same curves as before.
  async function draw(keep) {
    const mine = ++turn, tags = new Map();
    const answers = await Promise.all(runs.map((run) => get("tags", { run: run.id, kind: "scalar", search: settings.search, limit: 500 })));
    if (mine !== turn) return;
    let total = 0;
    answers.forEach((answer, i) => {
      total = Math.max(total, answer.total);
      for (const tag of answer.tags) {
        if (!tags.has(tag.tag)) tags.set(tag.tag, []);
        tags.get(tag.tag).push([runs[i], tag.id]);
      }
    });
    const names = [...tags.keys()].sort((a, b) => order(a) - order(b) || a.localeCompare(b));
    const curves = JSON.stringify(names.slice(0, MOST).map((tag) => [tag, tags.get(tag).map(([run, id]) => [run.id, id])]));
    if (keep && curves === drawn) { redraw(); return; }
    drawn = curves;
    note.textContent = names.length > MOST ? `${MOST} of ${Math.max(total, names.length)} tags; the search finds the others` : "";
    charts.forEach((one) => one.destroy());
    charts = names.slice(0, MOST).map((tag) => make(tag, tags.get(tag)));
    clear(list, charts.length ? charts.map((one) => one.card) : empty("No scalar here", "Loss and times are recorded unless summary.scalars is 0.",
      "summary: {scalars: 1}        # every step"));
    for (const one of charts) await one.draw();
  }

  function make(tag, sources) {
    return chart({ title: tag, log: settings.log, time: settings.axis === "time", load: (range) => Promise.all(sources.map(async ([run, id]) => {
      const answer = await get("scalars", { run: run.id, id, smoothing: settings.smoothing, axis: settings.axis, ...range });
      const bad = answer.not_finite ? ` (${answer.not_finite} not finite, first at step ${answer.first_not_finite})` : "";
      return { name: run.name + bad, colour: runColour(run.id), points: answer.points };
    })) });
  }

  const redraw = () => { charts.forEach((one) => one.draw()); };
  const shown = h("output", { for: "smoothing" }, String(settings.smoothing));
  clear(place, h("p", { class: "lead" }, "The line is smoothed over every value; the band shows the least and the greatest value of each pixel. Draw a box to zoom; back takes one step back."),
    h("div", { class: "bar" },
      h("input", { type: "search", placeholder: "search tags", "aria-label": "Search tags", value: settings.search,
        oninput: (event) => { settings.search = event.target.value; draw(); } }),
      h("label", {}, "smoothing", h("input", { id: "smoothing", type: "range", min: "0", max: "0.99", step: "0.01", value: settings.smoothing,
        oninput: (event) => { settings.smoothing = Number(event.target.value); shown.textContent = event.target.value; redraw(); } }), shown),
      h("label", {}, h("input", { type: "checkbox", checked: settings.log, onchange: (event) => {
        settings.log = event.target.checked;
        charts.forEach((one) => one.setLog(settings.log));
      } }), "log axis"),
      h("label", {}, "against", h("select", { onchange: (event) => { settings.axis = event.target.value; draw(); } },
        ["step", "time"].map((axis) => h("option", { value: axis, selected: axis === settings.axis }, axis))))),
    note, list);
  await draw();
  const stop = onChange(() => draw(true).catch(() => {})); // a run that is gone
  return () => { stop(); turn++; charts.forEach((one) => one.destroy()); };
}

const order = (tag) => (tag.startsWith("train/") ? 0 : tag.startsWith("test/") ? 1 : 2);
