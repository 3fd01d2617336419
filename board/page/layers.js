// Placing a directed graph in layers: each node below all that it reads, neighbours near each other.

// nodes: [{id, width, height}], edges: [[from, to]]. Gives each node x and y (its middle), and returns the size of it all. Edges that
// would close a cycle do not count for the layers.
export function placeInLayers(nodes, edges, gap = { x: 26, y: 46 }) {
  const byId = new Map(nodes.map((node) => [node.id, node])), after = new Map(nodes.map((node) => [node.id, []]));
  for (const [from, to] of edges) if (from !== to && byId.has(from) && byId.has(to)) after.get(from).push(to);
  const layers = layerNodes(nodes, after), rows = [];
  for (const node of nodes) (rows[layers.get(node.id)] ??= []).push(node);
  const filled = rows.filter(Boolean);
  untangle(filled, edges);
  let y = 0, width = 0;
  for (const row of filled) {
    const height = Math.max(...row.map((node) => node.height));
    let x = 0;
    for (const node of row) { node.x = x + node.width / 2; node.y = y + height / 2; x += node.width + gap.x; }
    row.width = x - gap.x;
    width = Math.max(width, row.width);
    y += height + gap.y;
  }
  for (const row of filled) for (const node of row) node.x += (width - row.width) / 2;
  return { width, height: y - gap.y };
}

// The longest path to each node, by a depth-first order that leaves edges back out.
function layerNodes(nodes, after) {
  const state = new Map(), order = [], back = new Set();
  for (const root of nodes) {
    const stack = [[root.id, 0]];
    if (state.has(root.id)) continue;
    state.set(root.id, 1);
    while (stack.length) {
      const top = stack[stack.length - 1], next = after.get(top[0])[top[1]++];
      if (next === undefined) { state.set(top[0], 2); order.push(top[0]); stack.pop(); continue; }
      if (state.get(next) === 1) back.add(`${top[0]}\n${next}`);
      else if (!state.has(next)) { state.set(next, 1); stack.push([next, 0]); }
    }
  }
  const layers = new Map(nodes.map((node) => [node.id, 0]));
  for (const id of order.reverse())
    for (const next of after.get(id)) if (!back.has(`${id}\n${next}`)) layers.set(next, Math.max(layers.get(next), layers.get(id) + 1));
  return layers;
}

// Barycentres, down and up a few times.
function untangle(rows, edges) {
  const ins = new Map(), outs = new Map(), put = (map, key, value) => map.set(key, [...(map.get(key) ?? []), value]);
  for (const [from, to] of edges) { put(ins, to, from); put(outs, from, to); }
  const place = new Map(), number = (row) => row.forEach((node, i) => place.set(node.id, i / Math.max(1, row.length)));
  rows.forEach(number);
  for (let turn = 0; turn < 6; turn++) {
    const down = turn % 2 === 0, list = down ? rows : [...rows].reverse(), near = down ? ins : outs;
    for (const row of list) {
      const middle = new Map(row.map((node) => {
        const around = (near.get(node.id) ?? []).map((id) => place.get(id)).filter((x) => x !== undefined);
        return [node.id, around.length ? around.reduce((a, b) => a + b, 0) / around.length : place.get(node.id)];
      }));
      row.sort((a, b) => middle.get(a.id) - middle.get(b.id));
      number(row);
    }
  }
}
