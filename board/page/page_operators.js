// Where time goes by op: types in a chart, ops in a table.
import { get } from "/api.js";
import { focusRun } from "/main.js";
import { h, clear, table, bars, empty, number, ms, percent, bytes, colourOf, deviceColour } from "/dom.js";

export async function show(place) {
  const run = focusRun();
  const answer = await get("operators", { run: run.id }).catch((error) => ({ error }));
  if (answer.error) {
    clear(place, empty("No trace in this run", "Times of ops are recorded on request, for ten steps by default. Record them with", "tandem train CONFIG --profile\nkill -USR1 PID                  # a training that runs"));
    return;
  }
  const ops = answer.ops, total = ops.reduce((sum, op) => sum + op.total_ms, 0), steps = Math.max(1, answer.steps), list = h("div"), chart = h("div", { class: "card" });
  const state = { by: "op", search: "" };
  const draw = () => {
    const shown = ops.filter((op) => [op.name, op.op, op.device, op.subgraph].join(" ").toLowerCase().includes(state.search));
    const groups = new Map();
    for (const op of shown) groups.set(op[state.by], (groups.get(op[state.by]) ?? 0) + op.total_ms);
    const items = [...groups].map(([name, value]) => ({ name, value, label: `${ms(value / steps)} (${percent(value / total)})`, colour: state.by === "device" ? deviceColour(name) : colourOf(name) })).sort((a, b) => b.value - a.value);
    clear(chart, h("h2", {}, `Time a step by ${{ op: "type", name: "op" }[state.by] ?? state.by}`), items.length ? bars(items.slice(0, 14)) : h("p", { class: "lead" }, "No op matches."));
    clear(list, h("div", { class: "card" }, table([
      { name: "op", value: (o) => o.name }, { name: "type", value: (o) => o.op, show: (o) => h("span", {}, o.op, o.inserted && h("span", { class: "tag", title: "put there by the planner" }, "inserted")) },
      { name: "device", value: (o) => o.device }, { name: "phase", value: (o) => o.phase }, { name: "subgraph", value: (o) => o.subgraph },
      { name: "a step", number: true, value: (o) => o.total_ms / steps, show: (o) => ms(o.total_ms / steps) },
      { name: "share", number: true, value: (o) => o.total_ms, show: (o) => percent(o.total_ms / total) },
      { name: "longest", number: true, value: (o) => o.longest_ms, show: (o) => ms(o.longest_ms) },
      { name: "runs", number: true, value: (o) => o.n },
      { name: "GFLOP/s", number: true, value: (o) => rate(o, o.flops), show: (o) => number(rate(o, o.flops), 3) },
      { name: "GB/s", number: true, value: (o) => rate(o, o.bytes), show: (o) => number(rate(o, o.bytes), 3) },
      { name: "moved", number: true, value: (o) => o.bytes, show: (o) => bytes(o.bytes, true) },
    ], shown, { label: "Ops", sort: 5 })));
  };
  clear(place, h("p", { class: "lead" }, `${ops.length} ops over ${answer.steps} recorded steps: ${ms(total / steps)} a step, all lanes together.`),
    h("div", { class: "bar" }, h("input", { type: "search", placeholder: "op, type, device, subgraph", "aria-label": "Search ops", oninput: (event) => { state.search = event.target.value.trim().toLowerCase(); draw(); } }),
      h("label", {}, "chart by", h("select", { onchange: (event) => { state.by = event.target.value; draw(); } }, [["op", "type"], ["name", "op"], ["device", "device"], ["phase", "phase"], ["subgraph", "subgraph"]].map(([value, name]) => h("option", { value }, name))))), chart, list);
  draw();
}

// Reached, per second, in billions. What the plan counts is at a full batch.
const rate = (op, amount) => (op.total_ms > 0 && amount > 0 ? (amount * op.n) / (op.total_ms * 1e6) : null);
