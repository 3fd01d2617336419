// A line chart on uPlot: envelopes, box zoom with a step back, a log axis, a full screen.
import { h, css, number } from "/dom.js";

/* global uPlot */
const WHOLE = Array.from({ length: 39 }, (_, i) => [1, 2, 5][i % 3] * 10 ** Math.floor(i / 3)); // distances of ticks

// options: {title, height, log, xLabel, time, load(range) -> Promise<[{name, colour, points: [[x, value, least, greatest, smoothed]], unit(y)?}]>}
// `load` gets {from, to, pixels} and is asked again after each zoom, so that a zoomed chart has all its detail.
export function chart(options) {
  const place = h("div", { tabindex: "0", role: "img", "aria-label": `${options.title}. Plus zooms, arrows move, Backspace steps back.` }), note = h("div", { class: "legend" });
  const back = h("button", { title: "Back to the view before (Backspace)", disabled: true, onclick: () => step(-1) }, "back");
  const full = h("button", { title: "Full screen (Escape leaves it)", "aria-pressed": "false", onclick: () => toggleFull() }, "full");
  const card = h("section", { class: "card", "aria-label": options.title },
    h("div", { class: "card-head" }, h("h2", {}, options.title), options.buttons, back, full), place, note);
  let views = [{}], plot = null, log = options.log ?? false, turn = 0, gone = false;

  const view = () => views[views.length - 1];
  function step(by, next) {
    if (by < 0 && views.length > 1) views.pop();
    if (next) views.push(next);
    back.disabled = views.length < 2;
    return draw();
  }
  function toggleFull(on = !card.classList.contains("full")) {
    card.classList.toggle("full", on);
    full.setAttribute("aria-pressed", String(on));
    draw();
  }
  // The middle half, or a quarter to a side.
  place.addEventListener("keydown", (event) => {
    const by = { "+": [0.25, 0.75], "=": [0.25, 0.75], ArrowLeft: [-0.25, 0.75], ArrowRight: [0.25, 1.25] }[event.key];
    if (!by || !plot) return;
    event.preventDefault();
    const { min, max } = plot.scales.x, range = { ...view(), from: min + by[0] * (max - min), to: min + by[1] * (max - min) };
    if (event.key === "+" || event.key === "=") step(1, range);
    else if (views.length > 1) { views[views.length - 1] = range; draw(); }
  });
  card.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && card.classList.contains("full")) toggleFull(false);
    if (event.key === "Backspace" && views.length > 1) step(-1);
  });

  function table(series) {
    const columns = [[]], lookup = new Map();
    for (const one of series) for (const point of one.points) lookup.set(point[0], 0);
    columns[0] = [...lookup.keys()].sort((a, b) => a - b);
    columns[0].forEach((x, i) => lookup.set(x, i));
    for (const one of series) {
      const rows = [0, 0, 0].map(() => new Array(columns[0].length).fill(undefined));
      for (const point of one.points) {
        const i = lookup.get(point[0]);
        [point[2], point[3], point[4]].forEach((y, k) => { rows[k][i] = log && !(y > 0) ? null : y; });
      }
      columns.push(...rows);
    }
    return columns;
  }

  function make(series) {
    const data = table(series), whole = !options.time && data[0].every(Number.isInteger); // steps: none lies between two
    const axis = { stroke: css("--quiet"), grid: { stroke: css("--grid"), width: 1 }, ticks: { stroke: css("--grid") }, font: "12px system-ui, sans-serif" };
    const lines = series.flatMap((one) => {
      const faint = { stroke: "transparent", points: { show: false }, spanGaps: true, width: 0 };
      return [faint, faint, { label: one.name, stroke: one.colour, width: 1.8, spanGaps: true, points: { show: one.points.length < 40, size: 4, fill: one.colour } }];
    });
    const bands = series.map((one, i) => ({ series: [i * 3 + 2, i * 3 + 1], fill: one.colour + "2e" }));
    const width = Math.max(220, place.clientWidth || 400);
    const height = card.classList.contains("full") ? Math.max(260, innerHeight - 150) : options.height ?? 230;
    const range = view();
    return new uPlot({
      width, height, legend: { show: false },
      scales: { x: { time: Boolean(options.time), range: range.from === undefined ? undefined : () => [range.from, range.to] },
        y: { distr: log ? 3 : 1, range: range.low === undefined ? undefined : () => [range.low, range.high] } },
      axes: [{ ...axis, label: undefined, size: 34, ...(whole && { incrs: WHOLE }) },
        { ...axis, size: 62, values: (_, ticks) => ticks.map((t) => (t === null ? "" : number(t, 4))) }],
      series: [{}, ...lines], bands,
      cursor: { drag: { x: true, y: true, uni: 12, setScale: false }, points: { size: 7 } },
      hooks: {
        setSelect: [(u) => {
          const { left, top, width: w, height: t } = u.select;
          if (w < 4 && t < 4) return;
          const next = { ...view() };
          if (w >= 4) { next.from = u.posToVal(left, "x"); next.to = u.posToVal(left + w, "x"); }
          if (t >= 12 && t < u.over.clientHeight - 4) { next.high = u.posToVal(top, "y"); next.low = u.posToVal(top + t, "y"); }
          u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          step(1, next);
        }],
        setCursor: [(u) => say(u, series)],
      },
    }, data, place);
  }

  // What is under the pointer; without one, the last values.
  function say(u, series) {
    const at = u.cursor.idx;
    note.replaceChildren(...series.slice(0, 12).map((one, i) => {
      const column = u.data[3 * i + 3], x = u.data[0];
      let k = at ?? x.length - 1;
      while (k > 0 && (column[k] === undefined || column[k] === null)) k--;
      return h("span", {}, h("i", { class: "swatch", style: { background: one.colour } }), `${one.name}: ${one.unit ? one.unit(column[k] ?? null) : number(column[k], 5)}`,
        x.length ? ` at ${options.time ? new Date(1000 * x[k]).toLocaleTimeString() : number(x[k])}` : "");
    }));
  }

  async function draw() {
    const mine = ++turn, range = view();
    let series;
    try {
      series = await options.load({ from: range.from, to: range.to, pixels: Math.max(200, place.clientWidth || 400) });
    } catch (error) {
      note.replaceChildren(h("span", { class: "bad" }, error.message));
      return;
    }
    if (mine !== turn || gone) return;
    plot?.destroy();
    place.replaceChildren();
    plot = null;
    if (!series.some((one) => one.points.length)) {
      note.replaceChildren("no value in this range");
      return;
    }
    plot = make(series);
    say(plot, series);
    card.dataset.ready = "yes";
  }

  let width = 0;
  const sizes = new ResizeObserver(() => {
    if (Math.abs(place.clientWidth - width) < 4) return;
    width = place.clientWidth;
    if (plot) draw();
  });
  sizes.observe(place);
  return { card, draw, setLog: (on) => { log = on; return draw(); }, destroy: () => { gone = true; sizes.disconnect(); plot?.destroy(); } };
}
