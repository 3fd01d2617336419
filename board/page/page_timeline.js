// Every event of a trace on a line of its thread. The server merges what is narrower than a pixel, so a view of ten million events is
// as quick as one of a hundred; what is seen is asked for again, in detail, after each move.
import { get } from "/api.js";
import { focusRun } from "/main.js";
import { makePainter } from "/strip.js";
import { h, clear, empty, css, colourOf, ms, number, tip } from "/dom.js";

const ROW = 20, LABELS = 170, TOP = 26, MOST_TALL = 60000; // pixels: a taller canvas stays blank
const KIND_COLOURS = { 1: "#8a8fa3", 6: "#b9bfce", 11: "#d1495b", 12: "#2a9d6f", 13: "#b9bfce", 14: "#8a63d2", 15: "#c9a227", 16: "#c9a227", 5: "#e0752d", 20: "#3aa6b9" };

const nameOf = (box) => (box[6] === "step" ? `step ${box[4]}` : box[6] === "micro_step" ? `part of step ${box[4]}` : box[6]);

export async function show(place) {
  const run = focusRun();
  const first = await get("timeline", { run: run.id, pixels: 1200 }).catch((error) => ({ error }));
  if (first.error || !first.rows.length) {
    clear(place, empty("No trace in this run", first.error ? first.error.message.split("\n")[0] : "The trace holds no event.", "tandem train CONFIG --profile\nkill -USR1 PID                  # a training that runs"));
    return null;
  }
  const view = { from: first.begin, to: first.end }, whole = { begin: first.begin, end: Math.max(first.end, first.begin + 1) };
  const surface = h("canvas", { class: "surface", tabindex: "0", role: "img", "aria-label": "Timeline. W and S zoom, A and D move, 0 shows all." });
  const details = h("div", { class: "card", "aria-live": "polite" }, "A press on a box tells what it is.");
  const inks = new Map();
  let painter = {}, data = first, asked = 0, timer = null, frame = 0, gone = false, hidden = "";
  const state = { frames: [] };
  place.dataset.frames = "";

  // Of its kind; ops have that of their name.
  function boxColour(box) {
    let colour = KIND_COLOURS[box[5]] ?? inks.get(box[6]);
    if (!colour) inks.set(box[6], colour = colourOf(box[6]));
    return colour;
  }
  const matching = () => data.rows.filter((row) => !hidden || row.thread.toLowerCase().includes(hidden));
  const rows = () => matching().slice(0, Math.floor(MOST_TALL / (ROW * (devicePixelRatio || 1))));
  const less = h("p", { class: "lead", role: "status" });
  const width = () => Math.max(200, surface.clientWidth - LABELS);
  const xOf = (ns) => LABELS + ((ns - view.from) * width()) / (view.to - view.from);

  function draw() {
    frame = 0;
    const begun = performance.now(), list = rows(), scale = devicePixelRatio || 1, tall = TOP + list.length * ROW + 8, wide = surface.clientWidth;
    if (surface.width !== Math.round(wide * scale) || surface.height !== Math.round(tall * scale)) {
      surface.width = Math.round(wide * scale);
      surface.height = Math.round(tall * scale);
      surface.style.height = `${tall}px`;
    }
    const context = surface.getContext("2d");
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, wide, tall);
    const colours = { text: css("--text"), quiet: css("--quiet"), card: css("--card"), line: css("--grid") };
    if (list.length) drawBoxes(context, list, scale, colours, wide);
    const left = matching().length - list.length;
    less.textContent = left > 0 ? `${number(left)} more rows do not fit here: search for their threads.` : "";
    context.globalCompositeOperation = "destination-over"; // lines behind the boxes
    drawScale(context, wide, tall);
    context.globalCompositeOperation = "source-over";
    list.forEach((row, i) => nameRow(context, row, TOP + i * ROW, colours, i ? list[i - 1].thread : null));
    state.frames.push(performance.now() - begun);
    if (state.frames.length > 200) state.frames.shift();
    place.dataset.frames = state.frames.map((t) => t.toFixed(1)).join(" ");
  }
  const later = () => { if (!frame && !gone) frame = requestAnimationFrame(draw); };

  function drawScale(context, wide, tall) {
    const span = view.to - view.from, rough = span / Math.max(2, width() / 130), power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough) ?? rough;
    context.font = "11px system-ui, sans-serif";
    context.fillStyle = css("--quiet");
    context.strokeStyle = css("--grid");
    for (let t = Math.ceil((view.from - whole.begin) / step) * step; t <= view.to - whole.begin; t += step) {
      const x = Math.round(xOf(t + whole.begin)) + 0.5;
      context.beginPath();
      context.moveTo(x, TOP - 6);
      context.lineTo(x, tall);
      context.stroke();
      context.fillText(ms(t / 1e6), x + 3, 14);
    }
  }

  function drawBoxes(context, list, scale, colours, wide) {
    const labels = [], tall = Math.round(ROW * scale), perNs = (width() * scale) / (view.to - view.from);
    if (painter.back !== colours.card) painter = Object.assign(makePainter(colours.card), { back: colours.card });
    painter.begin(Math.max(1, Math.round((wide - LABELS) * scale)), list.length * tall);
    list.forEach((row, i) => painter.row(row.boxes, view.from - data.from, perNs, boxColour, i * tall + Math.round(scale), (i + 1) * tall - Math.round(2 * scale),
      46 * scale, (box, from, to) => labels.push([box, LABELS + from / scale, LABELS + to / scale, TOP + i * ROW])));
    painter.end(context, Math.round(LABELS * scale), Math.round(TOP * scale));
    for (const [box, from, to, y] of labels) label(context, box, from, to, y);
  }

  function nameRow(context, row, y, colours, above) {
    if (row.thread !== above) {
      context.strokeStyle = colours.line;
      context.beginPath();
      context.moveTo(0, y - 0.5);
      context.lineTo(surface.clientWidth, y - 0.5);
      context.stroke();
    }
    context.fillStyle = row.depth === 2 ? colours.quiet : colours.text;
    context.font = row.depth === 2 ? "11px system-ui, sans-serif" : "600 12px system-ui, sans-serif";
    const text = row.depth === 0 ? `steps ${row.lane + 1}` : row.depth === 2 ? `${row.thread}: ops` : row.thread;
    context.fillText(text.length > 25 ? `${text.slice(0, 24)}…` : text, 8, y + 14);
  }

  function label(context, box, x, end, y) {
    const text = box[3] > 1 ? `${box[3]} events` : nameOf(box), room = Math.floor((end - x - 8) / 6.4);
    if (room < 3) return;
    context.fillStyle = "#10151f";
    context.font = "11px system-ui, sans-serif";
    context.fillStyle = ["#b9bfce", "#c9a227", "#e0752d", "#3aa6b9"].includes(KIND_COLOURS[box[5]]) ? "#10151f" : "#ffffff";
    context.fillText(text.length > room ? `${text.slice(0, room - 1)}…` : text, x + 4, y + 14);
  }

  // What is seen, in the detail of its pixels, a little beyond both sides so that a short move needs no answer.
  async function fetchView() {
    const mine = ++asked, span = view.to - view.from;
    const answer = await get("timeline", { run: run.id, from: Math.round(view.from - span / 2), to: Math.round(view.to + span / 2), pixels: Math.round(width() * 2) }).catch(() => null);
    if (!answer || mine !== asked || gone) return;
    data = answer;
    later();
  }
  function moved() {
    const least = 50, most = (whole.end - whole.begin) * 1.1;
    if (view.to - view.from < least) view.to = view.from + least;
    if (view.to - view.from > most) { view.from = whole.begin - 0.05 * (whole.end - whole.begin); view.to = view.from + most; }
    later();
    clearTimeout(timer);
    timer = setTimeout(fetchView, 60);
  }
  function zoom(by, at = 0.5) {
    const span = view.to - view.from, centre = view.from + at * span;
    view.from = centre - at * span * by;
    view.to = view.from + span * by;
    moved();
  }
  function pan(share) {
    const shift = share * (view.to - view.from);
    view.from += shift;
    view.to += shift;
    moved();
  }
  const all = () => { view.from = whole.begin; view.to = whole.end; moved(); };

  function boxAt(event) {
    const bounds = surface.getBoundingClientRect(), row = rows()[Math.floor((event.clientY - bounds.top - TOP) / ROW)], x = event.clientX - bounds.left;
    const ns = view.from + ((x - LABELS) * (view.to - view.from)) / width() - data.from, slack = (2 * (view.to - view.from)) / width();
    return x < LABELS || !row ? null : row.boxes.find((box) => ns >= box[0] - slack && ns <= box[1] + slack) ?? null;
  }
  const describe = (box) => (box[3] > 1 ? `${number(box[3])} events side by side, the longest ${box[6]}` : nameOf(box));

  let drag = null;
  surface.addEventListener("pointerdown", (event) => { drag = { x: event.clientX, moved: false }; surface.setPointerCapture(event.pointerId); });
  surface.addEventListener("pointermove", (event) => {
    if (drag && event.buttons) {
      drag.moved = drag.moved || Math.abs(event.clientX - drag.x) > 2;
      pan((drag.x - event.clientX) / width());
      drag.x = event.clientX;
      tip(event, "");
      return;
    }
    const box = boxAt(event);
    tip(event, box && `${describe(box)}\n${ms(box[2] / 1e6)}${box[4] ? `, step ${box[4]}` : ""}`);
  });
  surface.addEventListener("pointerup", (event) => {
    const box = drag && !drag.moved ? boxAt(event) : null;
    drag = null;
    if (box) clear(details, h("b", {}, describe(box)), ` – begins at ${ms((data.from + box[0] - whole.begin) / 1e6)}, takes ${ms((box[1] - box[0]) / 1e6)}`,
      box[3] > 1 ? `, of which ${ms(box[2] / 1e6)} are events` : "", box[4] ? `, step ${box[4]}` : "");
  });
  surface.addEventListener("pointerleave", (event) => tip(event, ""));
  surface.addEventListener("wheel", (event) => {
    event.preventDefault();
    const bounds = surface.getBoundingClientRect();
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan((event.deltaX || event.deltaY) / 800);
    else zoom(event.deltaY > 0 ? 1.25 : 0.8, Math.min(1, Math.max(0, (event.clientX - bounds.left - LABELS) / width())));
  }, { passive: false });
  const keys = (event) => {
    if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) || event.ctrlKey || event.metaKey || event.altKey) return;
    const act = { w: () => zoom(0.7), s: () => zoom(1.4), a: () => pan(-0.15), d: () => pan(0.15), 0: all }[event.key.toLowerCase()];
    if (act) { event.preventDefault(); act(); }
  };
  addEventListener("keydown", keys);
  const sizes = new ResizeObserver(() => moved());

  clear(place, h("p", { class: "lead" }, `${number(first.events)} events over ${ms((first.end - first.begin) / 1e6)}. W and S zoom, A and D move, 0 shows all; wheel and dragging do too.`),
    (first.dropped > 0 || first.cut) && h("div", { class: "note" }, first.dropped > 0 ? `${number(first.dropped)} records were dropped for want of room.` : "The file was cut off; what is before the cut is shown."),
    h("div", { class: "bar" }, h("input", { type: "search", placeholder: "threads", "aria-label": "Search threads", oninput: (event) => { hidden = event.target.value.trim().toLowerCase(); later(); } }),
      h("button", { onclick: () => zoom(0.6), title: "W" }, "zoom in"), h("button", { onclick: () => zoom(1.6), title: "S" }, "zoom out"), h("button", { onclick: () => pan(-0.25), title: "A" }, "left"), h("button", { onclick: () => pan(0.25), title: "D" }, "right"), h("button", { onclick: all, title: "0" }, "all")),
    first.threads_left_out > 0 && h("div", { class: "note" }, `${number(first.threads_left_out)} of ${number(first.threads)} threads have no row here: tandem profile RUN --perfetto FILE shows every one.`),
    surface, less, details);
  sizes.observe(surface);
  draw();
  return () => { gone = true; removeEventListener("keydown", keys); sizes.disconnect(); clearTimeout(timer); };
}
