// The step trace: where the time of each recorded step went, over all devices.
import { get } from "/api.js";
import { focusRun } from "/main.js";
import { h, clear, table, empty, svg, bytes, ms, percent, colour, tip } from "/dom.js";

const CAUSES = [["subgraph_ms", "ops", "#2f6fed"], ["copy_ms", "copies", "#e0752d"], ["wake_up_ms", "waking a lane", "#c9a227"], ["data_ms", "waiting for data", "#d1495b"], ["host_ms", "the run's own thread", "#8a63d2"], ["unknown_ms", "not recorded", "#7a8194"]];
const WORK = [["data_wait_ms", "data wait"], ["forward_ms", "forward"], ["backward_ms", "backward"], ["update_ms", "update"], ["to_device_ms", "copies to devices"], ["to_host_ms", "copies to the host"],
  ["all_reduce_ms", "all-reduce"], ["pull_ms", "pull"], ["push_ms", "push"], ["checkpoint_ms", "checkpoint"], ["callback_ms", "callback"], ["tail_ms", "tail"]];

export async function show(place) {
  const profile = await get("profile", { run: focusRun().id }).catch((error) => ({ error }));
  if (profile.error) {
    clear(place, empty("No step trace", profile.error.message.split("\n")[0], "tandem train CONFIG --profile\ntandem train CONFIG --set profile.steps=10-20"));
    return;
  }
  const state = { step: null }, chosen = h("div");
  const pick = (step) => { state.step = step; draw(); };
  const picture = h("div", { class: "card" });
  const draw = () => {
    clear(picture, h("h2", {}, "Critical path of each step"), stacks(profile.steps, state.step, pick),
      h("div", { class: "legend" }, CAUSES.map(([, name, fill]) => h("span", {}, h("i", { class: "swatch", style: { background: fill } }), name))));
    clear(chosen, oneStep(profile, state.step));
  };
  const trace = profile.trace;
  clear(place, h("p", { class: "lead" }, `${profile.steps.length} steps, ${trace.records} records, clock error ${trace.clock_error_ns} ns. Every nanosecond of a step's interval has one cause; a press on a bar shows that step.`),
    (trace.dropped > 0 || trace.cut) && h("div", { class: "note" }, trace.dropped > 0 ? `${trace.dropped} records were dropped for want of room: times are short of them.` : "The file was cut off: what is before the cut is shown."),
    picture, chosen, lanes(profile), subgraphs(profile));
  draw();
}

function stacks(steps, chosen, pick) {
  const width = Math.max(640, steps.length * 24), most = Math.max(...steps.map((s) => s.interval_ms), 1e-9), slot = (width - 60) / Math.max(1, steps.length);
  const columns = steps.map((step, i) => {
    let y = 190;
    const parts = CAUSES.map(([key, name, fill]) => {
      const value = step.critical_path[key], height = (170 * value) / most;
      y -= height;
      return svg("rect", { x: 54 + i * slot, width: Math.max(1, slot - 4), y, height: Math.max(0, height), fill, opacity: chosen === null || chosen === step.step ? 1 : 0.35,
        onpointermove: (event) => tip(event, `step ${step.step}: ${ms(step.interval_ms)}\n${name} ${ms(value)}`), onpointerleave: (event) => tip(event, "") });
    });
    const group = svg("g", { role: "button", tabindex: "0", "aria-label": `step ${step.step}, ${ms(step.interval_ms)}`, "aria-pressed": String(chosen === step.step), cursor: "pointer",
      onclick: () => pick(chosen === step.step ? null : step.step), onkeydown: (event) => { if (event.key === "Enter") pick(chosen === step.step ? null : step.step); } }, parts,
    i % Math.ceil(steps.length / 20) === 0 && svg("text", { x: 54 + i * slot + slot / 2 - 2, y: 206, "font-size": 11, "text-anchor": "middle", fill: "currentColor" }, step.step));
    return group;
  });
  return h("div", { class: "table-wrap", tabindex: "0", role: "region", "aria-label": "Steps" }, svg("svg", { viewBox: `0 0 ${width} 212`, width: steps.length > 40 ? width : "100%", height: steps.length > 40 ? 212 : undefined, role: "group", "aria-label": "Critical path of each step" },
    svg("text", { x: 48, y: 24, "font-size": 11, "text-anchor": "end", fill: "currentColor" }, ms(most)), svg("text", { x: 48, y: 192, "font-size": 11, "text-anchor": "end", fill: "currentColor" }, "0"), columns));
}

function oneStep(profile, chosen) {
  const step = profile.steps.find((s) => s.step === chosen) ?? profile.average;
  return h("div", { class: "card" }, h("h2", {}, chosen === null ? "Average step" : `Step ${chosen}`),
    h("div", { class: "figures" }, figure("interval", ms(step.interval_ms)), figure("from admission to end", ms(step.span_ms)), figure("to devices", bytes(step.to_device_bytes, true)), figure("to the host", bytes(step.to_host_bytes, true)),
      WORK.filter(([key]) => step[key] > 0).map(([key, name]) => figure(name, ms(step[key])))),
    h("p", { class: "lead" }, "Work of a kind is summed over lanes, which may work at the same time."));
}
const figure = (name, value) => h("div", { class: "figure" }, h("b", {}, value), h("span", {}, name));

function lanes(profile) {
  const names = ["busy", ...CAUSES.map(([, name]) => name)];
  return h("div", { class: "card" }, h("h2", {}, "Lanes: work, and what idle time waited for"), h("div", { class: "bars" }, profile.lanes.map((lane) => {
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
    { name: "a run", number: true, value: (s) => s.ms, show: (s) => ms(s.ms) },
    { name: "on the critical path", number: true, value: (s) => s.critical_path_ms, show: (s) => ms(s.critical_path_ms) },
    { name: "planned", number: true, value: (s) => s.planned_ms, show: (s) => ms(s.planned_ms) },
    { name: "copied", number: true, value: (s) => s.bytes, show: (s) => (s.bytes === undefined ? "–" : bytes(s.bytes, true)) },
    { name: "hidden", number: true, value: (s) => s.hidden, show: (s) => (s.hidden === undefined ? "–" : percent(s.hidden)) },
  ], profile.subgraphs, { label: "Subgraphs and copies", sort: 4 }));
}
