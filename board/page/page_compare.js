// The chosen runs side by side: what differs in their settings, what came of it.
import { get } from "/api.js";
import { chart } from "/chart.js";
import { chosenRuns, runColour } from "/main.js";
import { METRICS } from "/page_runs.js";
import { h, clear, empty, number, bytes, ms, percent } from "/dom.js";

export async function show(place) {
  const runs = chosenRuns().slice(0, 12);
  if (runs.length < 2) {
    clear(place, empty("Nothing to compare", "Tick two or more runs on the page Runs."));
    return null;
  }
  const loss = chart({ title: "train/loss", height: 260, load: (range) => Promise.all(runs.map(async (run) => {
    const answer = await get("scalars", { run: run.id, tag: "train/loss", smoothing: 0.8, ...range }).catch(() => ({ points: [] }));
    return { name: run.name, colour: runColour(run.id), points: answer.points };
  })) });
  clear(place, h("p", { class: "lead" }, "Settings are listed where the runs differ. The best figure of a row is set in bold."), loss.card,
    h("div", { class: "card" }, h("h2", {}, "Results"), side("Results", runs, results(runs))),
    h("div", { class: "card" }, h("h2", {}, "Settings that differ"), side("Settings that differ", runs, differences(runs))));
  await loss.draw();
  return () => loss.destroy();
}

// [name, [value of each run], text of a value, which is better: 1 more, -1 less, 0 neither]
function results(runs) {
  const row = (name, value, text, better) => [name, runs.map(value), text, better];
  return [
    row("loss", (r) => r.loss, number, -1),
    ...METRICS(runs).map((metric) => row(metric, (r) => r.metrics?.[metric], number, /loss/.test(metric) ? -1 : 1)),
    row("steps", (r) => r.steps, number, 0),
    row("step, median", (r) => r.step_ms?.median, ms, -1),
    row("samples/s", (r) => r.samples_per_s, (x) => number(x, 4), 1),
    row("copies and host work hidden", (r) => r.overlap, percent, 1),
    row("copied to devices a step", (r) => r.copies?.to_device_bytes_per_step, (x) => bytes(x, true), -1),
    row("copied to the host a step", (r) => r.copies?.to_host_bytes_per_step, (x) => bytes(x, true), -1),
    row("parameters", (r) => r.parameters, number, 0),
    row("checksum of parameters", (r) => r.parameters_checksum, (x) => x ?? "–", 0),
  ];
}

function differences(runs) {
  const keys = [...new Set(runs.flatMap((run) => Object.keys(run.settings ?? {})))].sort();
  const rows = keys.map((key) => [key, runs.map((run) => run.settings?.[key]), (x) => (x === undefined ? "–" : String(x)), 0]);
  return rows.filter(([, values]) => new Set(values.map(String)).size > 1);
}

function side(label, runs, rows) {
  if (!rows.length) return h("p", { class: "lead" }, "There is no difference.");
  const best = (values, better) => {
    const numbers = values.filter((x) => typeof x === "number");
    return better && numbers.length > 1 ? (better > 0 ? Math.max(...numbers) : Math.min(...numbers)) : undefined;
  };
  return h("div", { class: "table-wrap", tabindex: "0", role: "region", "aria-label": label }, h("table", {},
    h("thead", {}, h("tr", {}, h("td", {}), runs.map((run) => h("th", { scope: "col" }, h("i", { class: "swatch", style: { background: runColour(run.id) } }), run.name)))),
    h("tbody", {}, rows.map(([name, values, text, better]) => h("tr", {}, h("th", { scope: "row" }, name),
      values.map((value) => h("td", {}, value === best(values, better) ? h("b", {}, text(value)) : text(value ?? null))))))));
}
