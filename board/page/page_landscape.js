// The loss around a training: contours and a surface over two directions in the space of all weights, with the path that the training
// took; of one run, or of the ticked runs side by side on one scale.
import { get } from "/api.js";
import { chosenRuns, focusRun } from "/main.js";
import { contours } from "/contours.js";
import { h, clear, empty, canvas, css, number, percent, tip } from "/dom.js";

const SIZE = 440, MARGIN = 40;
const MAP = [[38, 52, 130], [38, 110, 180], [45, 160, 160], [110, 190, 110], [215, 205, 80], [235, 150, 55], [190, 60, 50]];
const settings = { view: "contours", log: true, all: false };

export async function show(place) {
  const run = focusRun(), one = await get("landscape", { run: run.id }).catch(() => null);
  const others = (await Promise.all(chosenRuns().filter((r) => r.id !== run.id).slice(0, 5).map(async (r) => [r, await get("landscape", { run: r.id }).catch(() => null)]))).filter(([, found]) => found);
  if (!one && !others.length) {
    clear(place, empty("No landscape of this run", "A training keeps its weights at the points that the configuration names; tandem landscape then draws the loss around them.",
      "landscape: {unit: epoch, intervals: [[1, 2, 3]], create_landscape: {result: on}}\n\ntandem train model.yaml --run runs/first\ntandem landscape runs/first"));
    return;
  }
  const list = h("div", { class: "cards" });
  const draw = () => {
    const runs = [...(one ? [[run, one]] : []), ...(settings.all || !one ? others : [])];
    const pictures = runs.flatMap(([r, found]) => found.landscapes.map((l) => ({ run: r, found, l })));
    const shared = scaleOf(pictures.map((p) => p.l), settings.log);
    clear(list, pictures.map((p) => picture(p, settings.all ? shared : scaleOf([p.l], settings.log))));
  };
  const choice = (name, options, key) => h("label", {}, name, h("select", { onchange: (event) => { settings[key] = event.target.value; draw(); } }, options.map((o) => h("option", { value: o, selected: o === settings[key] }, o))));
  const check = (name, key, disabled) => h("label", {}, h("input", { type: "checkbox", checked: settings[key], disabled, onchange: (event) => { settings[key] = event.target.checked; draw(); } }), name);
  clear(place, h("p", { class: "lead" }, "Each point is the mean loss at those weights. Along a training the two directions are the principal ones of its path; around a result they are random, each row as long as the weights' own. Pictures of several runs share one scale."),
    h("div", { class: "bar" }, choice("as", ["contours", "surface"], "view"), check("logarithmic", "log"), check("with the ticked runs", "all", !others.length)), list);
  draw();
}

function scaleOf(landscapes, log) {
  const losses = landscapes.flatMap((l) => l.loss.flat()).filter((v) => v !== null && (!log || v > 0));
  const shape = log ? Math.log : (v) => v;
  let least = Infinity, most = -Infinity;
  for (const loss of losses) { least = Math.min(least, loss); most = Math.max(most, loss); }
  const low = shape(least), high = shape(most);
  const place = (v) => (v === null || (log && v <= 0) ? null : high > low ? Math.min(1, Math.max(0, (shape(v) - low) / (high - low))) : 0);
  const value = (at) => (log ? Math.exp(low + at * (high - low)) : low + at * (high - low));
  return { place, value, least, most };
}

function colourAt(at) {
  if (at === null) return "rgb(128, 128, 128)";
  const x = at * (MAP.length - 1), i = Math.min(MAP.length - 2, Math.floor(x)), t = x - i;
  return `rgb(${MAP[i].map((c, k) => Math.round(c + (MAP[i + 1][k] - c) * t)).join(", ")})`;
}

function picture({ run, found, l }, scale) {
  const path = l.path ?? [], title = l.kind === "train" ? `${run.name}: ${found.unit}s ${path.map((p) => p.at).join(", ")}` : `${run.name}: around step ${l.step}`;
  const [element, context] = canvas(SIZE, SIZE);
  element.setAttribute("role", "img");
  element.setAttribute("aria-label", `${title}: loss from ${number(scale.least)} to ${number(scale.most)}`);
  (settings.view === "surface" ? surface : flat)(element, context, l, path, scale);
  const said = l.kind === "train" ? `the directions hold ${l.explained.map((e, i) => (l.random[i] ? "none (drawn by chance)" : percent(e))).join(" and ")} of the path` : "two random directions, filter-normalised";
  return h("section", { class: "card" }, h("div", { class: "card-head" }, h("h2", {}, title)), element, ramp(scale),
    h("div", { class: "legend" }, `${found.samples} samples; ${said}`, path.length > 0 && `; loss ${number(path[0].loss)} at the first point, ${number(path[path.length - 1].loss)} at the last`));
}

function ramp(scale) {
  return h("div", { class: "legend" }, h("span", {}, number(scale.least, 3)), h("span", { class: "ramp", style: { background: `linear-gradient(90deg, ${[0, 0.17, 0.33, 0.5, 0.67, 0.83, 1].map(colourAt).join(", ")})` } }), h("span", {}, number(scale.most, 3)), "loss");
}

function flat(element, context, l, path, scale) {
  const inner = SIZE - 2 * MARGIN, nx = l.x.length, ny = l.y.length;
  const px = (v) => MARGIN + (inner * (v - l.x[0])) / (l.x[nx - 1] - l.x[0] || 1), py = (v) => SIZE - MARGIN - (inner * (v - l.y[0])) / (l.y[ny - 1] - l.y[0] || 1);
  const w = inner / (nx - 1), t = inner / (ny - 1), grid = l.loss.map((row) => row.map(scale.place));
  context.save();
  context.beginPath();
  context.rect(MARGIN, MARGIN, inner, inner);
  context.clip();
  context.imageSmoothingQuality = "high";
  context.drawImage(small(grid), MARGIN - w / 2, MARGIN - t / 2, inner + w, inner + t);
  context.strokeStyle = "rgb(255 255 255 / 65%)";
  context.lineWidth = 0.9;
  for (let level = 1; level < 14; level++) {
    context.beginPath();
    for (const [[ax, ay], [bx, by]] of contours(grid, level / 14)) {
      context.moveTo(MARGIN + ax * w, SIZE - MARGIN - ay * t);
      context.lineTo(MARGIN + bx * w, SIZE - MARGIN - by * t);
    }
    context.stroke();
  }
  drawPath(context, path, (p) => [px(p.x), py(p.y)]);
  context.restore();
  axes(context, l, px, py);
  element.addEventListener("pointermove", (event) => {
    const scaleBy = SIZE / element.clientWidth, x = event.offsetX * scaleBy, y = event.offsetY * scaleBy;
    const near = path.find((p) => Math.hypot(px(p.x) - x, py(p.y) - y) < 8);
    const i = Math.round((x - MARGIN) / w), j = Math.round((SIZE - MARGIN - y) / t), loss = l.loss[j]?.[i];
    tip(event, near ? `step ${near.step}: loss ${number(near.loss)}` : loss === undefined ? "" : `loss ${loss === null ? "not finite" : number(loss)}\n${number(l.x[i], 3)}, ${number(l.y[j], 3)}`);
  });
  element.addEventListener("pointerleave", (event) => tip(event, ""));
}

// A pixel for each point, which the picture makes larger and smooth.
function small(grid) {
  const element = h("canvas"), wide = grid[0].length, tall = grid.length, context = element.getContext("2d");
  element.width = wide;
  element.height = tall;
  grid.forEach((row, j) => row.forEach((at, i) => {
    context.fillStyle = colourAt(at);
    context.fillRect(i, tall - 1 - j, 1, 1);
  }));
  return element;
}

function drawPath(context, path, at) {
  if (!path.length) return;
  const line = (colour, width) => {
    context.strokeStyle = colour;
    context.lineWidth = width;
    context.beginPath();
    path.forEach((p, i) => (i ? context.lineTo(...at(p)) : context.moveTo(...at(p))));
    context.stroke();
  };
  line("#ffffff", 4);
  line("#101418", 1.8);
  path.forEach((p, i) => {
    const [x, y] = at(p), last = i === path.length - 1;
    context.beginPath();
    context.arc(x, y, last ? 6 : 4, 0, 7);
    context.fillStyle = last ? "#101418" : "#ffffff";
    context.fill();
    context.strokeStyle = last ? "#ffffff" : "#101418";
    context.lineWidth = 1.5;
    context.stroke();
  });
}

function axes(context, l, px, py) {
  const low = (list) => list[0], high = (list) => list[list.length - 1];
  context.fillStyle = css("--quiet");
  context.font = "12px system-ui, sans-serif";
  context.textAlign = "center";
  for (const v of [low(l.x), 0, high(l.x)]) context.fillText(number(v, 2), px(v), SIZE - MARGIN + 16);
  context.fillText("first direction", SIZE / 2, SIZE - MARGIN + 34);
  context.textAlign = "right";
  for (const v of [low(l.y), 0, high(l.y)]) context.fillText(number(v, 2), MARGIN - 6, py(v) + 4);
}

// Cells from the back to the front, seen from an angle that dragging or the arrows change.
function surface(element, context, l, path, scale) {
  const nx = l.x.length, ny = l.y.length, grid = l.loss.map((row) => row.map(scale.place)), view = { turn: -0.65, tilt: 0.95 };
  const project = (u, v, z) => {
    const x = u - 0.5, y = v - 0.5, a = x * Math.cos(view.turn) - y * Math.sin(view.turn), b = x * Math.sin(view.turn) + y * Math.cos(view.turn);
    return [SIZE / 2 + a * SIZE * 0.68, SIZE * 0.56 - (b * Math.cos(view.tilt) + (z - 0.4) * 0.62 * Math.sin(view.tilt)) * SIZE * 0.68, b];
  };
  function draw() {
    context.clearRect(0, 0, SIZE, SIZE);
    const cells = [];
    for (let j = 0; j + 1 < ny; j++) for (let i = 0; i + 1 < nx; i++) {
      const z = [grid[j][i], grid[j][i + 1], grid[j + 1][i + 1], grid[j + 1][i]];
      if (z.includes(null)) continue;
      const corners = [[i, j], [i + 1, j], [i + 1, j + 1], [i, j + 1]].map(([a, b], k) => project(a / (nx - 1), b / (ny - 1), z[k]));
      cells.push({ corners, far: corners.reduce((sum, c) => sum + c[2], 0), at: (z[0] + z[1] + z[2] + z[3]) / 4 });
    }
    cells.sort((a, b) => b.far - a.far);
    context.lineWidth = 0.4;
    for (const cell of cells) {
      context.beginPath();
      cell.corners.forEach(([x, y], k) => (k ? context.lineTo(x, y) : context.moveTo(x, y)));
      context.closePath();
      context.fillStyle = colourAt(cell.at);
      context.fill();
      context.strokeStyle = "rgb(255 255 255 / 35%)";
      context.stroke();
    }
    const unit = (list, v) => (v - list[0]) / (list[list.length - 1] - list[0] || 1);
    drawPath(context, path, (p) => project(unit(l.x, p.x), unit(l.y, p.y), (scale.place(p.loss) ?? 0) + 0.02).slice(0, 2));
  }
  const move = (turn, tilt) => { view.turn += turn; view.tilt = Math.min(1.5, Math.max(0.1, view.tilt + tilt)); draw(); };
  let from = null;
  element.tabIndex = 0;
  element.style.touchAction = "none";
  element.addEventListener("pointerdown", (event) => { from = [event.clientX, event.clientY]; element.setPointerCapture(event.pointerId); });
  element.addEventListener("pointermove", (event) => {
    if (!from || !event.buttons) return;
    move((event.clientX - from[0]) * -0.01, (event.clientY - from[1]) * -0.008);
    from = [event.clientX, event.clientY];
  });
  element.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: [0.1, 0], ArrowRight: [-0.1, 0], ArrowUp: [0, -0.08], ArrowDown: [0, 0.08] }[event.key];
    if (by) { event.preventDefault(); move(...by); }
  });
  draw();
}
