// Settings and results of all runs as parallel coordinates with brushes, a scatter plot, and how strongly a setting goes with a result.
import { board, choose, runColour } from "/main.js";
import { METRICS } from "/page_runs.js";
import { h, clear, empty, number, svg, bars, tip } from "/dom.js";

const SIZE = { width: 1000, height: 330, top: 40, bottom: 26, side: 60 };

export function show(place) {
  const runs = board.runs.filter((run) => run.settings);
  const targets = ["loss", ...METRICS(runs), "step_ms", "samples_per_s"].filter((t) => runs.some((run) => Number.isFinite(result(run, t))));
  const keys = varying(runs);
  if (runs.length < 2 || !targets.length) {
    clear(place, empty("Two runs are needed", "This page shows how results go with settings, over runs that have ended.",
      "tandem train model.yaml --set optimizer[0].lr=0.01\ntandem train model.yaml --set optimizer[0].lr=0.1"));
    return;
  }
  const state = { target: targets[0], x: keys[0] ?? "seed", brushes: new Map() };
  const parallel = h("div", { class: "card" }), scatter = h("div", { class: "card" }), importance = h("div", { class: "card" }), spread = h("div", { class: "card" });
  const draw = () => {
    drawParallel(parallel, runs, [...keys.slice(0, 8), state.target], state, draw);
    drawScatter(scatter, runs, keys, state, draw);
    drawSpread(spread, runs, state);
    drawImportance(importance, runs, keys, state);
  };
  clear(place, h("p", { class: "lead" }, "Draw along an axis to keep the runs that pass there; a press on an axis lifts its brush. By keys: arrows bring the nearer end in, Escape lifts."),
    h("div", { class: "bar" },
      h("label", {}, "result", h("select", { onchange: (event) => { state.target = event.target.value; draw(); } }, targets.map((t) => h("option", { value: t }, t)))),
      h("button", { onclick: () => choose(runs.filter((run) => passes(run, state)).map((run) => run.id)) }, "tick the runs that pass")),
    parallel, h("div", { class: "cards" }, scatter, spread, importance));
  draw();
}

function result(run, target) {
  if (target === "step_ms") return run.step_ms?.median;
  return run[target] ?? run.metrics?.[target];
}
const isResult = (key) => !key.includes(".") || key === "seed";
const valueOf = (run, key) => (isResult(key) ? result(run, key) : run.settings[key]);

function varying(runs) {
  const keys = [...new Set(runs.flatMap((run) => Object.keys(run.settings)))];
  const common = keys.filter((key) => runs.filter((run) => run.settings[key] !== undefined).length > runs.length / 2);
  const changing = common.filter((key) => !/^(summary|log|profile|checkpoint)\./.test(key) && new Set(runs.map((run) => String(run.settings[key]))).size > 1);
  return changing.sort((a, b) => rank(a) - rank(b) || a.localeCompare(b));
}
const rank = (key) => (/^optimizer/.test(key) ? 0 : /^train/.test(key) ? 1 : /^model/.test(key) ? 2 : 3);

// Where a value lies on an axis, 0 to 1, and what stands at its ends. Texts are spread evenly.
function scaleOf(runs, key) {
  const values = runs.map((run) => valueOf(run, key)), numbers = values.filter(Number.isFinite);
  if (numbers.length === values.filter((v) => v !== undefined && v !== null).length && numbers.length) {
    const least = Math.min(...numbers), most = Math.max(...numbers);
    return { place: (v) => (Number.isFinite(v) ? (most > least ? (v - least) / (most - least) : 0.5) : null), low: number(least), high: number(most) };
  }
  const names = [...new Set(values.map(String))].sort();
  return { place: (v) => (names.length > 1 ? names.indexOf(String(v)) / (names.length - 1) : 0.5), low: names[0], high: names[names.length - 1] };
}

function passes(run, state) {
  for (const [, [scale, key, low, high]] of state.brushes) {
    const at = scale.place(valueOf(run, key));
    if (at === null || at < low || at > high) return false;
  }
  return true;
}

const cut = (text, n) => (String(text).length > n ? `${String(text).slice(0, n - 1)}…` : String(text));

function drawParallel(card, runs, keys, state, redraw) {
  const { width, height, top, bottom, side } = SIZE, inner = height - top - bottom;
  const x = (i) => side + (keys.length > 1 ? (i * (width - 2 * side)) / (keys.length - 1) : 0), y = (at) => top + (1 - at) * inner;
  const scales = keys.map((key) => scaleOf(runs, key));
  for (const key of [...state.brushes.keys()]) if (!keys.includes(key)) state.brushes.delete(key);
  const lines = runs.map((run) => {
    const points = keys.map((key, i) => [x(i), scales[i].place(valueOf(run, key))]).filter(([, at]) => at !== null).map(([px, at]) => `${px},${y(at)}`);
    return svg("polyline", { points: points.join(" "), fill: "none", stroke: runColour(run.id), "stroke-width": 2, opacity: passes(run, state) ? 0.9 : 0.08,
      onpointermove: (event) => tip(event, run.name), onpointerleave: (event) => tip(event, "") });
  });
  const axes = keys.map((key, i) => {
    const brush = state.brushes.get(key);
    const group = svg("g", {}, svg("line", { x1: x(i), x2: x(i), y1: top, y2: top + inner, stroke: "currentColor", opacity: 0.5 }),
      svg("text", { x: x(i), y: 14, "text-anchor": "middle", "font-size": 12, "font-weight": 600, fill: "currentColor" }, svg("title", {}, key), cut(key.replace(/^optimizer\[(\d+)\]\./, "opt $1 "), 14)),
      svg("text", { x: x(i), y: top - 8, "text-anchor": "middle", "font-size": 11, fill: "currentColor" }, cut(scales[i].high, 18)),
      svg("text", { x: x(i), y: top + inner + 16, "text-anchor": "middle", "font-size": 11, fill: "currentColor" }, cut(scales[i].low, 18)),
      brush && svg("rect", { x: x(i) - 7, width: 14, y: y(brush[3]), height: y(brush[2]) - y(brush[3]), fill: "var(--accent)", opacity: 0.35 }));
    const handle = svg("rect", { x: x(i) - 16, width: 32, y: top, height: inner, fill: "transparent", cursor: "ns-resize", tabindex: "0", role: "button", "data-axis": key,
      "aria-label": `Brush of ${key}${brush ? `, from ${Math.round(100 * brush[2])} % to ${Math.round(100 * brush[3])} % of its axis` : ""}` });
    handle.addEventListener("keydown", (event) => {
      const [low, high] = brush ? [brush[2], brush[3]] : [0, 1], next = { ArrowUp: [low + 0.1, high], ArrowDown: [low, high - 0.1], Escape: null }[event.key];
      if (next === undefined) return;
      event.preventDefault();
      if (next && next[0] < next[1]) state.brushes.set(key, [scales[i], key, ...next]);
      else if (!next) state.brushes.delete(key);
      redraw();
      card.querySelector(`[data-axis="${CSS.escape(key)}"]`)?.focus();
    });
    let from = null;
    const at = (event) => {
      const box = handle.getBoundingClientRect();
      return Math.min(1, Math.max(0, 1 - (event.clientY - box.top) / box.height));
    };
    handle.addEventListener("pointerdown", (event) => { from = at(event); handle.setPointerCapture(event.pointerId); });
    handle.addEventListener("pointerup", (event) => {
      const to = at(event);
      if (Math.abs(to - from) < 0.02) state.brushes.delete(key);
      else state.brushes.set(key, [scales[i], key, Math.min(from, to), Math.max(from, to)]);
      redraw();
    });
    group.append(handle);
    return group;
  });
  const passing = runs.filter((run) => passes(run, state)).length;
  clear(card, h("h2", {}, `Settings and result: ${passing} of ${runs.length} runs`),
    h("div", { class: "table-wrap", tabindex: "0", role: "region", "aria-label": "Parallel coordinates" },
      svg("svg", { viewBox: `0 0 ${width} ${height}`, width: "100%", class: "wide-picture", role: "group", "aria-label": `Parallel coordinates of ${keys.join(", ")}` }, lines, axes)));
}

function drawScatter(card, runs, keys, state, redraw) {
  const options = ["seed", ...keys].filter((key, i, all) => all.indexOf(key) === i);
  const sx = scaleOf(runs, state.x), sy = scaleOf(runs, state.target), place = (at, low, high) => low + at * (high - low);
  const dots = runs.map((run) => {
    const ax = sx.place(valueOf(run, state.x)), ay = sy.place(result(run, state.target));
    return ax === null || ay === null ? null : svg("circle", { cx: place(ax, 64, 400), cy: place(ay, 210, 22), r: 6, fill: runColour(run.id), opacity: passes(run, state) ? 0.95 : 0.12,
      onpointermove: (event) => tip(event, `${run.name}\n${state.x} ${valueOf(run, state.x)}\n${state.target} ${number(result(run, state.target))}`), onpointerleave: (event) => tip(event, "") });
  });
  const label = (x, y, text, anchor) => svg("text", { x, y, "font-size": 11, fill: "currentColor", "text-anchor": anchor }, cut(text, 20));
  clear(card, h("div", { class: "card-head" }, h("h2", {}, "Scatter"), h("label", {}, "against ", h("select", { "aria-label": "Setting of the scatter plot",
    onchange: (event) => { state.x = event.target.value; redraw(); } }, options.map((key) => h("option", { value: key, selected: key === state.x }, key))))),
  svg("svg", { viewBox: "0 0 420 250", width: "100%", class: "scatter", role: "img", "aria-label": `${state.target} against ${state.x}` },
    svg("path", { d: "M56 16V218H408", fill: "none", stroke: "currentColor", opacity: 0.5 }), dots,
    label(52, 24, sy.high, "end"), label(52, 214, sy.low, "end"), label(64, 234, sx.low, "middle"), label(400, 234, sx.high, "end"), label(230, 247, state.x, "middle")));
}

function drawSpread(card, runs, state) {
  const values = runs.map((run) => result(run, state.target)).filter(Number.isFinite), n = Math.min(10, Math.max(4, Math.ceil(Math.sqrt(values.length))));
  const least = Math.min(...values), most = Math.max(...values), width = (most - least) / n || 1, counts = new Array(n).fill(0);
  for (const value of values) counts[Math.min(n - 1, Math.floor((value - least) / width))]++;
  const digits = Math.min(9, Math.max(3, Math.ceil(Math.log10(Math.max(Math.abs(least), Math.abs(most), 1e-300) / width)) + 1)); // enough to tell bins apart
  clear(card, h("h2", {}, `Distribution of ${state.target}`),
    bars(counts.map((count, i) => ({ name: `${number(least + i * width, digits)} – ${number(least + (i + 1) * width, digits)}`, value: count, label: String(count) }))));
}

// Of numbers, the rank correlation; of texts, the share of the ranks' variance between their groups (eta squared's root).
function drawImportance(card, runs, keys, state) {
  const rows = runs.filter((run) => Number.isFinite(result(run, state.target))), ranks = rankOf(rows.map((run) => result(run, state.target)));
  const items = keys.map((key) => ({ name: key, ...strength(rows.map((run) => run.settings[key]), ranks) })).filter((item) => Number.isFinite(item.value));
  items.sort((a, b) => b.value - a.value);
  clear(card, h("h2", {}, `What goes with ${state.target}`), items.length ? bars(items.slice(0, 12)) : h("p", { class: "lead" }, "No setting differs between these runs."),
    h("p", { class: "lead" }, `Rank correlation over ${rows.length} runs; few runs say little, and what goes together need not be a cause.`));
}
function rankOf(values) {
  const order = values.map((v, i) => [v, i]).sort((a, b) => a[0] - b[0]), ranks = [];
  for (let i = 0; i < order.length;) {
    let j = i;
    while (j < order.length && order[j][0] === order[i][0]) j++;
    for (let k = i; k < j; k++) ranks[order[k][1]] = (i + j - 1) / 2;
    i = j;
  }
  return ranks;
}
function strength(values, ranks) {
  const mean = (x) => x.reduce((a, b) => a + b, 0) / x.length, my = mean(ranks), total = ranks.reduce((a, r) => a + (r - my) ** 2, 0);
  if (values.every(Number.isFinite)) {
    const x = rankOf(values), mx = mean(x), sxx = x.reduce((a, r) => a + (r - mx) ** 2, 0);
    const r = x.reduce((a, v, i) => a + (v - mx) * (ranks[i] - my), 0) / Math.sqrt(sxx * total);
    return { value: Math.abs(r), label: number(r, 2) };
  }
  const groups = new Map();
  values.forEach((v, i) => groups.set(String(v), [...(groups.get(String(v)) ?? []), ranks[i]]));
  const between = [...groups.values()].reduce((a, g) => a + g.length * (mean(g) - my) ** 2, 0), value = Math.sqrt(between / total);
  return { value, label: number(value, 2) };
}
