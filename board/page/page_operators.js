// Where time goes by op: types in a chart, ops in a table.
import { focusRun } from "/main.js";
import { h, clear, table, bars, empty, number, ms, planned, percent, bytes, colourOf, deviceColour } from "/dom.js";
import { profileOf, whoseBar } from "/whose.js";

const GROUPS = [["by_type", "type"], ["by_op", "op"], ["by_subgraph", "subgraph"], ["by_device", "device"]];

export async function show(place) {
  const profile = await profileOf(focusRun().id).catch((error) => ({ error }));
  if (profile.error) {
    clear(place, empty("No trace in this run", "Times of ops are recorded on request, for ten steps by default. Record them with", "tandem train CONFIG --profile\nkill -USR1 PID                  # a training that runs"));
    return;
  }
  const operators = profile.operators, ops = operators.by_op, total = ops.reduce((sum, op) => sum + op.self_ms, 0);
  const state = { by: "by_type", search: "" }, list = h("div"), chart = h("div", { class: "card" }), details = h("div", { class: "card", "aria-live": "polite" }, "A press on a row tells shapes and attributes of an op.");
  const matches = (row) => [row.name, row.op, row.device, row.subgraph, row.phase].join(" ").toLowerCase().includes(state.search);
  const draw = () => {
    const items = operators[state.by].filter(matches).sort((a, b) => b.self_ms - a.self_ms).slice(0, 14).map((row) => ({ name: row.name, value: row.self_ms,
      label: `${ms(row.self_ms)} (${percent(row.share)})`, colour: state.by === "by_device" ? deviceColour(row.name) : colourOf(row.op ?? row.name) }));
    clear(chart, h("h2", {}, `Time a step by ${GROUPS.find(([by]) => by === state.by)[1]}`), items.length ? bars(items) : h("p", { class: "lead" }, "Nothing matches."));
    clear(list, h("div", { class: "card" }, opTable(ops.filter(matches), details)));
  };
  clear(place, h("p", { class: "lead" }, `${ops.length} ops over ${profile.steps.length} recorded steps: ${ms(total)} a step, all lanes together.`),
    whoseBar(profile), !profile.device_ops && h("div", { class: "note" }, "A device of this run tells no times of single ops; its subgraphs are in the step trace."),
    h("div", { class: "bar" }, h("input", { type: "search", placeholder: "op, type, device, subgraph", "aria-label": "Search ops", oninput: (event) => { state.search = event.target.value.trim().toLowerCase(); draw(); } }),
      h("label", {}, "chart by", h("select", { onchange: (event) => { state.by = event.target.value; draw(); } }, GROUPS.map(([value, name]) => h("option", { value }, name))))), chart, list, details);
  draw();
}

function opTable(ops, details) {
  const per = (name, key, unit) => ({ name, number: true, value: (o) => o[key] || null, show: (o) => (o[key] ? number(o[key] / unit, 3) : "–") });
  return table([
    { name: "op", value: (o) => o.name },
    { name: "a step", number: true, value: (o) => o.total_ms, show: (o) => ms(o.total_ms) },
    { name: "share", number: true, value: (o) => o.share, show: (o) => percent(o.share) },
    { name: "type", value: (o) => o.op, show: (o) => h("span", {}, o.op, " ", o.inserted && h("span", { class: "tag", title: "put there by the planner" }, "inserted")) },
    { name: "device", value: (o) => o.device }, { name: "phase", value: (o) => o.phase },
    { name: "self", number: true, value: (o) => o.self_ms, show: (o) => ms(o.self_ms) },
    { name: "planned", number: true, value: (o) => o.planned_ms, show: (o) => planned(o.planned_ms) },
    { name: "runs", number: true, value: (o) => o.count }, per("GFLOP/s", "flops_per_s", 1e9), per("GB/s", "bytes_per_s", 1e9),
    { name: "of the peak", number: true, value: (o) => o.reached, show: (o) => (o.reached > 1 ? "beyond" : percent(o.reached || null)) },
    { name: "subgraph", value: (o) => o.subgraph },
  ], ops, { label: "Ops", sort: 1, onrow: (op) => clear(details, h("h2", {}, op.name), h("dl", {}, [["reads", op.inputs], ["makes", op.outputs], ["attributes", op.attributes],
    ["read and written", `${bytes(op.bytes_per_s * op.self_ms * 1e-3, true)} a step`]].filter(([, text]) => text).map(([name, text]) => [h("dt", {}, name), h("dd", {}, text)]))) });
}
