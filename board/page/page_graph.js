// The graph of the plan: subgraphs as boxes of their device's colour, which open into ops; what crosses between devices is drawn thick.
import { get } from "/api.js";
import { focusRun } from "/main.js";
import { placeInLayers } from "/layers.js";
import { h, clear, svg, table, empty, bytes, ms, number, deviceColour } from "/dom.js";

const MOST_NODES = 1500;

export async function show(place) {
  const run = await get("run", { run: focusRun().id }), plan = run.lineage?.plan;
  if (!plan?.subgraphs?.length) {
    clear(place, empty("No graph", "run.json of this run holds no plan; tandem train writes it before the first step."));
    return null;
  }
  const ops = new Map();
  for (const subgraph of plan.subgraphs) for (const op of subgraph.ops) ops.set(op.name, { ...op, subgraph });
  const state = { open: new Set(), chosen: null, search: "" }, picture = h("div"), details = h("aside", { class: "card", "aria-label": "Details", "aria-live": "polite" });
  plan.devices.forEach((device) => deviceColour(device.name));
  const camera = makeCamera(picture);
  const draw = (fit) => { drawGraph(plan, ops, state, picture, camera, choose, fit); drawDetails(plan, ops, state, details, toggle); };
  const choose = (id) => { state.chosen = state.chosen === id ? null : id; draw(false); };
  const toggle = (id) => { if (!state.open.delete(id)) state.open.add(id); draw(true); };
  const openAll = (on) => { state.open = new Set(on ? plan.subgraphs.map((s) => s.id) : []); draw(true); };
  const search = h("input", { type: "search", placeholder: "find an op", "aria-label": "Find an op", list: "ops", onchange: () => {
    const op = [...ops.values()].find((o) => o.name === search.value.trim()) ?? [...ops.values()].find((o) => o.name.includes(search.value.trim()));
    if (!op || !search.value.trim()) return;
    state.open.add(op.subgraph.id);
    state.chosen = op.name;
    draw(true);
    camera.centre(op.name);
  } });
  clear(place, h("p", { class: "lead" }, `${ops.size} ops in ${plan.subgraphs.length} subgraphs; ${plan.cut_edges.length} values cross between devices. Wheel or + and − zoom, dragging or arrows move; a press tells more of a box, a double press opens it.`),
    h("div", { class: "bar" }, search, h("datalist", { id: "ops" }, [...ops.keys()].slice(0, 2000).map((name) => h("option", { value: name }))),
      h("button", { onclick: () => openAll(true), disabled: ops.size > MOST_NODES }, "open all"), h("button", { onclick: () => openAll(false) }, "close all"), h("button", { onclick: () => camera.fit() }, "fit"),
      h("span", { class: "legend" }, plan.devices.map((device) => h("span", {}, h("i", { class: "swatch", style: { background: deviceColour(device.name) } }), device.name)))),
    h("div", { class: "split" }, picture, details),
    h("div", { class: "card" }, h("h2", {}, "Cut edges"), plan.cut_edges.length ? table([{ name: "value", value: (c) => c.value }, { name: "from", value: (c) => c.from }, { name: "to", value: (c) => c.to },
      { name: "bytes a step", number: true, value: (c) => c.bytes, show: (c) => bytes(c.bytes, true) }, { name: "planned", number: true, value: (c) => c.ms, show: (c) => ms(c.ms) }], plan.cut_edges, { label: "Cut edges", sort: 3 })
      : h("p", { class: "lead" }, "Nothing crosses: everything runs on one device.")));
  draw(true);
  return null;
}

// What is seen of the picture: moved and zoomed by pointer, wheel and keys.
function makeCamera(holder) {
  const view = { x: 0, y: 0, w: 100, h: 100, size: { width: 100, height: 100 } };
  let element = null;
  const apply = () => element?.setAttribute("viewBox", `${view.x} ${view.y} ${view.w} ${view.h}`);
  const zoom = (by, cx = 0.5, cy = 0.5) => {
    const w = Math.min(Math.max(view.w * by, 40), 8 * view.size.width + 400), scale = w / view.w;
    view.x += view.w * cx * (1 - scale);
    view.y += view.h * cy * (1 - scale);
    view.w = w;
    view.h *= scale;
    apply();
  };
  const fit = () => {
    const box = element.getBoundingClientRect(), ratio = box.width / Math.max(1, box.height), { width, height } = view.size;
    view.w = Math.max(width + 60, (height + 60) * ratio);
    view.h = view.w / ratio;
    view.x = width / 2 - view.w / 2;
    view.y = height / 2 - view.h / 2;
    apply();
  };
  // At first: all of it where that can be read, else its beginning.
  const begin = () => {
    fit();
    const box = element.getBoundingClientRect(), readable = box.width / 0.8;
    if (view.w <= 1.6 * readable) return;
    view.w = readable;
    view.h = (readable * box.height) / box.width;
    view.x = view.size.width / 2 - view.w / 2;
    view.y = -30;
    apply();
  };
  function attach(next, size) {
    element = next;
    view.size = size;
    let from = null;
    element.addEventListener("wheel", (event) => {
      event.preventDefault();
      const box = element.getBoundingClientRect();
      zoom(event.deltaY > 0 ? 1.2 : 1 / 1.2, (event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height);
    }, { passive: false });
    element.addEventListener("pointerdown", (event) => { from = [event.clientX, event.clientY]; });
    element.addEventListener("pointermove", (event) => {
      if (!from || !event.buttons) return;
      const scale = view.w / element.getBoundingClientRect().width;
      view.x -= (event.clientX - from[0]) * scale;
      view.y -= (event.clientY - from[1]) * scale;
      from = [event.clientX, event.clientY];
      apply();
    });
    element.addEventListener("keydown", (event) => {
      const move = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
      if (move) { view.x += move[0] * view.w * 0.1; view.y += move[1] * view.h * 0.1; apply(); event.preventDefault(); }
      if (event.key === "+" || event.key === "=") zoom(1 / 1.25);
      if (event.key === "-") zoom(1.25);
      if (event.key === "0") fit();
    });
    apply();
  }
  function centre(id) {
    const node = [...holder.querySelectorAll("[data-node]")].find((one) => one.dataset.node === String(id));
    if (!node) return;
    view.w = Math.min(view.w, 900);
    const box = element.getBoundingClientRect();
    view.h = (view.w * box.height) / box.width;
    view.x = Number(node.dataset.x) - view.w / 2;
    view.y = Number(node.dataset.y) - view.h / 2;
    apply();
  }
  return { attach, fit, begin, centre };
}

const idOf = (state, op) => (state.open.has(op.subgraph.id) ? op.name : `#${op.subgraph.id}`);
const cut = (text, n) => (text.length > n ? `${text.slice(0, n - 1)}…` : text);

function visible(plan, ops, state) {
  const nodes = new Map(), edges = new Map();
  for (const subgraph of plan.subgraphs)
    if (!state.open.has(subgraph.id)) nodes.set(`#${subgraph.id}`, { id: `#${subgraph.id}`, width: Math.min(300, Math.max(190, 24 + 8 * subgraph.name.length)), height: 50, name: subgraph.name, sub: `${subgraph.n_ops} ops, ${ms(subgraph.ms)}`, device: subgraph.device, group: subgraph.id });
  for (const op of ops.values()) {
    if (state.open.has(op.subgraph.id)) nodes.set(op.name, { id: op.name, width: 170, height: 36, name: op.name, sub: op.op, device: op.device, op: true });
    for (const input of op.inputs ?? []) {
      const source = ops.get(input);
      if (!source) continue;
      const from = idOf(state, source), to = idOf(state, op);
      if (from !== to) edges.set(`${from}\n${to}`, { from, to, cut: source.device !== op.device });
    }
  }
  return [[...nodes.values()], [...edges.values()]];
}

function drawGraph(plan, ops, state, picture, camera, choose, fit) {
  const [nodes, edges] = visible(plan, ops, state);
  const size = placeInLayers(nodes, edges.map((edge) => [edge.from, edge.to])), byId = new Map(nodes.map((node) => [node.id, node]));
  const lines = edges.map((edge) => {
    const a = byId.get(edge.from), b = byId.get(edge.to), y1 = a.y + a.height / 2, y2 = b.y - b.height / 2, bend = Math.max(18, Math.abs(y2 - y1) / 2);
    const near = state.chosen === edge.from || state.chosen === edge.to;
    return svg("path", { d: `M${a.x} ${y1}C${a.x} ${y1 + bend} ${b.x} ${y2 - bend} ${b.x} ${y2}`, fill: "none", stroke: edge.cut ? "#d1495b" : "currentColor", "stroke-width": near ? 3 : edge.cut ? 2.2 : 1.1,
      opacity: near ? 1 : edge.cut ? 0.85 : 0.35, "stroke-dasharray": edge.cut ? "7 4" : undefined });
  });
  const boxes = nodes.map((node) => {
    const press = () => choose(node.id), fill = deviceColour(node.device), chosen = state.chosen === node.id;
    return svg("g", { "data-node": node.id, "data-x": node.x, "data-y": node.y, tabindex: "0", role: "button", "aria-pressed": String(chosen), cursor: "pointer",
      onclick: press, ondblclick: () => node.group !== undefined && (state.open.add(node.group), choose(node.id)), onkeydown: (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); press(); } } },
    svg("title", {}, `${node.name} on ${node.device}`),
    svg("rect", { x: node.x - node.width / 2, y: node.y - node.height / 2, width: node.width, height: node.height, rx: node.op ? 7 : 11, fill: "var(--card)", stroke: fill, "stroke-width": chosen ? 4 : 2 }),
    svg("rect", { x: node.x - node.width / 2, y: node.y - node.height / 2, width: node.width, height: node.height, rx: node.op ? 7 : 11, fill, opacity: 0.14 }),
    svg("text", { x: node.x, y: node.y - 3, "text-anchor": "middle", "font-size": 12.5, "font-weight": 600, fill: "currentColor" }, cut(node.name, node.op ? 20 : Math.floor((node.width - 16) / 7.8))),
    svg("text", { x: node.x, y: node.y + 13, "text-anchor": "middle", "font-size": 11, fill: "currentColor" }, cut(node.sub, 24)));
  });
  const element = svg("svg", { class: "surface", height: 560, tabindex: "0", role: "group", "aria-label": "Graph of the plan", viewBox: "0 0 100 100", preserveAspectRatio: "xMidYMid meet" }, lines, boxes);
  clear(picture, element);
  camera.attach(element, size);
  if (fit) camera.begin();
}

function drawDetails(plan, ops, state, details, toggle) {
  const id = state.chosen, op = ops.get(id), subgraph = op?.subgraph ?? plan.subgraphs.find((s) => `#${s.id}` === id);
  if (!subgraph) {
    clear(details, h("h2", {}, "Nothing chosen"), h("p", { class: "lead" }, "A press on a box tells where it runs and why, what it costs, and what it reads."));
    return;
  }
  const facts = op ? { op: op.op, device: op.device, because: op.cause, subgraph: subgraph.name, "planned time": ms(op.ms), flops: number(op.flops, 3), "read and written": bytes(op.bytes, true), "flops per byte": number(op.flops_per_byte, 3), reads: (op.inputs ?? []).join(", ") || "nothing" }
    : { device: subgraph.device, because: subgraph.why, ops: subgraph.n_ops, "planned time": ms(subgraph.ms), flops: number(subgraph.flops, 3), "read and written": bytes(subgraph.bytes, true), "flops per byte": number(subgraph.flops_per_byte, 3), after: subgraph.after.join(", ") || "nothing" };
  clear(details, h("h2", {}, op ? op.name : subgraph.name), h("dl", {}, Object.entries(facts).map(([name, value]) => [h("dt", {}, name), h("dd", {}, String(value))])),
    h("p", {}, h("button", { onclick: () => toggle(subgraph.id) }, state.open.has(subgraph.id) ? "close its subgraph" : "open into ops")));
}
