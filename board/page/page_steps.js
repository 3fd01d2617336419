// The step trace: where the time of each recorded step went, over all devices; curves over steps; any step in detail.
import { focusRun } from "/main.js";
import { h, clear, table, empty, svg, bytes, ms, planned, percent, colour, tip } from "/dom.js";
import { CAUSES, curvesCard } from "/steps_curves.js";
import { figures, microSteps, overlaps, oneStep } from "/steps_detail.js";
import { profileOf, whoseBar } from "/whose.js";

const MOST_BARS = 240;

export async function show(place) {
  const profile = await profileOf(focusRun().id).catch((error) => ({ error }));
  if (profile.error) {
    clear(place, empty("No step trace", profile.error.message.split("\n")[0], "tandem train CONFIG --profile\ntandem train CONFIG --set profile.steps=10-20"));
    return;
  }
  const numbers = profile.steps.map((s) => s.step), chosen = h("div", { class: "card", "aria-live": "polite" }), lanePlace = h("div"), curvePlace = h("div");
  const picture = h("div", { class: "card" }), state = { step: null, turn: 0 };
  const pick = (step) => { state.step = step; draw(); };
  async function draw() {
    const turn = ++state.turn, focused = document.activeElement?.dataset?.part;
    clear(picture, h("h2", {}, "Critical path of each step"), stacks(profile.steps, state.step, pick),
      h("div", { class: "legend" }, CAUSES.map(([, name, fill]) => h("span", {}, h("i", { class: "swatch", style: { background: fill } }), name))));
    const detail = state.step === null ? { lanes: profile.lanes, parts: [figures(profile.average), microSteps(profile.average), overlaps(profile.overlaps)] }
      : await oneStep(profile.of, state.step).catch((error) => ({ lanes: profile.lanes, parts: [h("p", { class: "bad" }, error.message)] }));
    if (turn !== state.turn) return;
    clear(chosen, chooser(numbers, state.step, pick), detail.parts);
    clear(lanePlace, lanes(detail.lanes, state.step === null ? "Lanes: work, and what idle time waited for" : `Lanes in step ${state.step}: work, and what idle time waited for`));
    if (focused) chosen.querySelector(`[data-part="${focused}"]`)?.focus();
  }
  const trace = profile.trace;
  clear(place, h("p", { class: "lead" }, `${profile.steps.length} steps, ${trace.records} records, clock error ${trace.clock_error_ns} ns. Every nanosecond of a step's interval has one cause; a press on a bar shows that step.`),
    whoseBar(profile), (trace.dropped > 0 || trace.cut) && h("div", { class: "note" }, trace.dropped > 0 ? `${trace.dropped} records were dropped for want of room: times are short of them.` : "The file was cut off: what is before the cut is shown."),
    picture, curvePlace, chosen, lanePlace, subgraphs(profile));
  const curves = curvesCard(profile.of, curvePlace);
  await Promise.all([draw(), curves.ready]);
  return curves.end;
}

// Which step is shown below: all of them (their average), or one.
function chooser(numbers, step, pick) {
  const at = numbers.indexOf(step), move = (by) => pick(numbers[at < 0 ? (by > 0 ? 0 : numbers.length - 1) : at + by]);
  const field = h("input", { type: "number", "aria-label": "Step", "data-part": "step", min: numbers[0], max: numbers[numbers.length - 1], value: step ?? "", placeholder: "all",
    onchange: (event) => {
      const wanted = Number(event.target.value);
      pick(event.target.value === "" ? null : numbers.reduce((near, n) => (Math.abs(n - wanted) < Math.abs(near - wanted) ? n : near), numbers[0]));
    } });
  return h("div", { class: "card-head" }, h("h2", {}, step === null ? "Average step" : `Step ${step}`),
    h("button", { "data-part": "before", disabled: at === 0 || !numbers.length, onclick: () => move(-1) }, "before"), field,
    h("button", { "data-part": "next", disabled: at === numbers.length - 1 || !numbers.length, onclick: () => move(1) }, "next"),
    h("button", { "data-part": "average", "aria-pressed": String(step === null), onclick: () => pick(null) }, "average"));
}

// Bars of many steps stand for several each: their mean, and a press shows the slowest of them.
function gather(steps) {
  const each = Math.ceil(steps.length / MOST_BARS), bars = [];
  for (let i = 0; i < steps.length; i += each) {
    const some = steps.slice(i, i + each), mean = (of) => some.reduce((sum, s) => sum + of(s), 0) / some.length;
    const slowest = some.reduce((a, b) => (b.interval_ms > a.interval_ms ? b : a));
    bars.push({ label: some.length > 1 ? `steps ${some[0].step} to ${some[some.length - 1].step}, mean` : `step ${some[0].step}`, first: some[0].step, step: slowest.step, holds: (n) => n !== null && n >= some[0].step && n <= some[some.length - 1].step,
      interval_ms: mean((s) => s.interval_ms), causes: CAUSES.map(([key]) => mean((s) => s.critical_path[key])) });
  }
  return bars;
}

function stacks(all, chosen, pick) {
  const steps = gather(all), width = Math.max(Math.min(1000, innerWidth - 56), steps.length * 24), most = Math.max(...steps.map((s) => s.interval_ms), 1e-9), slot = (width - 60) / Math.max(1, steps.length);
  const columns = steps.map((bar, i) => {
    let y = 190;
    const on = bar.holds(chosen), press = () => pick(on ? null : bar.step);
    const parts = CAUSES.map(([, name, fill], k) => {
      const height = (170 * bar.causes[k]) / most;
      y -= height;
      return svg("rect", { x: 54 + i * slot, width: Math.max(1, slot - 4), y, height: Math.max(0, height), fill, opacity: chosen === null || on ? 1 : 0.35,
        onpointermove: (event) => tip(event, `${bar.label}: ${ms(bar.interval_ms)}\n${name} ${ms(bar.causes[k])}`), onpointerleave: (event) => tip(event, "") });
    });
    return svg("g", { role: "button", tabindex: "0", "aria-label": `${bar.label}, ${ms(bar.interval_ms)}`, "aria-pressed": String(on), cursor: "pointer",
      onclick: press, onkeydown: (event) => { if (event.key === "Enter") press(); } }, parts,
    i % Math.ceil(steps.length / 20) === 0 && svg("text", { x: 54 + i * slot + slot / 2 - 2, y: 206, "font-size": 11, "text-anchor": "middle", fill: "currentColor" }, bar.first));
  });
  return h("div", { class: "table-wrap", tabindex: "0", role: "region", "aria-label": "Steps" }, svg("svg", { viewBox: `0 0 ${width} 212`, width: steps.length > 40 ? width : "100%", height: steps.length > 40 ? 212 : undefined, role: "group", "aria-label": "Critical path of each step" },
    svg("text", { x: 48, y: 24, "font-size": 11, "text-anchor": "end", fill: "currentColor" }, ms(most)), svg("text", { x: 48, y: 192, "font-size": 11, "text-anchor": "end", fill: "currentColor" }, "0"), columns));
}

function lanes(list, title) {
  const names = ["busy", ...CAUSES.map(([, name]) => name)];
  return h("div", { class: "card" }, h("h2", {}, title), h("div", { class: "bars" }, list.map((lane) => {
    const whole = lane.busy_ms + lane.idle_ms || 1;
    const parts = [["busy", lane.busy_ms, "#2a9d6f"], ...CAUSES.map(([key, name, fill]) => [`idle: ${name}`, lane.idle_by_cause[key], fill])];
    return h("div", { class: "row" }, h("span", { class: "name" }, lane.name), h("span", { class: "track", role: "img", "aria-label": `${lane.name} busy ${percent(lane.busy_ms / whole)}` },
      parts.map(([name, value, fill]) => h("i", { title: `${name}: ${ms(value)}`, style: { width: `${(100 * value) / whole}%`, background: fill, opacity: name === "busy" ? 1 : 0.45 } }))),
    h("span", { class: "value" }, `${percent(lane.busy_ms / whole)} busy`));
  })), h("div", { class: "legend" }, names.map((name, i) => h("span", {}, h("i", { class: "swatch", style: { background: i ? CAUSES[i - 1][2] : "#2a9d6f", opacity: i ? 0.45 : 1 } }), i ? `idle: ${name}` : name))));
}

function subgraphs(profile) {
  return h("div", { class: "card" }, h("h2", {}, "Subgraphs and copies"), table([
    { name: "name", value: (s) => s.name, show: (s) => h("span", {}, h("i", { class: "swatch", style: { background: colour(s.lane === "compute" ? 0 : 1) } }), s.name) },
    { name: "device", value: (s) => s.device }, { name: "lane", value: (s) => s.lane.replaceAll("_", " ") },
    { name: "a step", number: true, value: (s) => s.ms, show: (s) => ms(s.ms) },
    { name: "on the critical path", number: true, value: (s) => s.critical_path_ms, show: (s) => ms(s.critical_path_ms) },
    { name: "planned", number: true, value: (s) => s.planned_ms, show: (s) => planned(s.planned_ms) },
    { name: "copied", number: true, value: (s) => s.bytes, show: (s) => (s.bytes === undefined ? "–" : bytes(s.bytes, true)) },
    { name: "hidden", number: true, value: (s) => s.hidden, show: (s) => (s.hidden === undefined ? "–" : percent(s.hidden)) },
  ], profile.subgraphs, { label: "Subgraphs and copies", sort: 4 }));
}
