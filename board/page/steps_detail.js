// One recorded step, or their average: its figures, its micro-steps, what made its critical path, and what went on at the same time.
import { get } from "/api.js";
import { h, table, bytes, ms, percent, svg, tip } from "/dom.js";
import { CAUSES, WORK } from "/steps_curves.js";

const CAUSE_OF = { subgraph: 0, copy: 1, "wake-up": 2, data: 3, host: 4 };
const figure = (name, value) => h("div", { class: "figure" }, h("b", {}, value), h("span", {}, name));

export function figures(step) {
  return [h("div", { class: "figures" }, figure("interval", ms(step.interval_ms)), figure("from admission to end", ms(step.span_ms)), figure("to devices", bytes(step.to_device_bytes, true)), figure("to the host", bytes(step.to_host_bytes, true)),
    WORK.filter(([key]) => step[key] > 0).map(([key, name]) => figure(name, ms(step[key])))),
  h("p", { class: "lead" }, "Work of a kind is summed over lanes, which may work at the same time.")];
}

export function microSteps(step) {
  const rows = step.micro_steps;
  if (!rows?.length) return null;
  const columns = [["interval_ms", "interval"], ...WORK].filter(([key]) => rows.some((r) => r[key] > 0));
  return [h("h3", { class: "above" }, "Micro-steps"), table([{ name: "micro-step", number: true, value: (r) => r.micro },
    ...columns.map(([key, name]) => ({ name, number: true, value: (r) => r[key], show: (r) => ms(r[key]) }))], rows, { label: "Micro-steps", sort: 0, down: false })];
}

// Pairs that were at work together; `share`: of the one that took less.
export function overlaps(pairs) {
  const together = pairs.filter((p) => p.ms > 0);
  if (!together.length) return [h("h3", { class: "above" }, "At the same time"), h("p", { class: "lead" }, "No two kinds of work went on at the same time.")];
  const columns = [{ name: "one", value: (p) => p.a }, { name: "the other", value: (p) => p.b }, { name: "both at work", number: true, value: (p) => p.ms, show: (p) => ms(p.ms) }];
  if (together[0].share !== undefined) columns.push({ name: "of the shorter", number: true, value: (p) => p.share, show: (p) => percent(p.share) });
  return [h("h3", { class: "above" }, "At the same time"), table(columns, together, { label: "At the same time", sort: 2 })];
}

// The critical path and when each subgraph ran, on the step's own time.
function pathPicture(answer) {
  const width = 1000, left = 236, row = 18, end = Math.max(answer.step.interval_ms, ...answer.subgraphs.map((s) => s.to_ms), 1e-9);
  const begin = Math.min(0, ...answer.subgraphs.map((s) => s.from_ms), ...answer.critical_path.map((p) => p.from_ms));
  const x = (t) => left + ((width - left - 8) * (t - begin)) / (end - begin);
  const hover = (text) => ({ onpointermove: (event) => tip(event, text), onpointerleave: (event) => tip(event, "") });
  const name = (text, y) => svg("text", { x: left - 8, y: y + 12, "font-size": 12, "text-anchor": "end", fill: "currentColor" }, text.length > 30 ? `${text.slice(0, 29)}…` : text);
  const path = answer.critical_path.map((p) => svg("rect", { x: x(p.from_ms), width: Math.max(0.8, x(p.from_ms + p.ms) - x(p.from_ms)), y: 4, height: row - 4,
    fill: (CAUSES[CAUSE_OF[p.cause] ?? 5])[2], ...hover(`${p.name ?? p.cause}: ${ms(p.ms)}\n${p.because}`) }));
  const runs = [...answer.subgraphs].sort((a, b) => a.from_ms - b.from_ms).slice(0, 60), on = new Set(answer.critical_path.map((p) => p.subgraph));
  const lines = runs.map((s, i) => [name(s.name, (i + 1) * row), svg("rect", { x: x(s.from_ms), width: Math.max(1.5, x(s.to_ms) - x(s.from_ms)), y: (i + 1) * row + 4, height: row - 7, rx: 2,
    fill: on.has(s.id) ? "#2f6fed" : "#7a8194", ...hover(`${s.name} on ${s.device}\n${ms(s.ms)} of work in ${s.runs} run${s.runs === 1 ? "" : "s"}\nfrom ${ms(s.from_ms)} to ${ms(s.to_ms)}`) })]);
  const height = (runs.length + 1) * row + 22;
  return h("div", { class: "table-wrap", tabindex: "0", role: "region", "aria-label": "When subgraphs ran" }, svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "wide-picture", width: "100%", role: "img",
    "aria-label": `Critical path of the step, and its ${runs.length} subgraphs and copies` }, name("critical path", 0), path, lines,
  svg("text", { x: x(0), y: height - 5, "font-size": 11, fill: "currentColor" }, "0"), svg("text", { x: width - 8, y: height - 5, "font-size": 11, "text-anchor": "end", fill: "currentColor" }, ms(end))));
}

// Asks for the step's detail.
export async function oneStep(of, step) {
  const answer = await get("step", { ...of, step });
  return { lanes: answer.lanes, parts: [figures(answer.step), h("h3", {}, "When subgraphs and copies ran; those on the critical path are blue"), pathPicture(answer), microSteps(answer.step), overlaps(answer.overlaps)] };
}
