// Making elements, and numbers as people read them. Text only ever becomes text, never markup: names of runs and tags are anybody's.

export function h(name, attributes, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "style") Object.assign(element.style, value);
    else if (key === "class") element.className = value;
    else if (["value", "checked", "disabled", "hidden"].includes(key)) element[key] = value;
    else element.setAttribute(key, value === true ? "" : value);
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
}

const SVG = "http://www.w3.org/2000/svg";
export function svg(name, attributes, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value);
  }
  append(element, children);
  return element;
}

export const clear = (element, ...children) => { element.replaceChildren(); append(element, children); return element; };

// What is missing, and how it is recorded.
export function empty(title, text, command) {
  return h("div", { class: "card empty" }, h("strong", {}, title), h("div", {}, text), command && h("pre", { tabindex: "0" }, command));
}

export const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const PALETTE = ["#2f6fed", "#e0752d", "#2a9d6f", "#b23a8e", "#8a63d2", "#c9a227", "#3aa6b9", "#d1495b", "#6b8e23", "#7a8194"];
export const colour = (index) => PALETTE[((index % PALETTE.length) + PALETTE.length) % PALETTE.length];
// The same name has the same colour on every page.
export function colourOf(name) {
  let hash = 0;
  for (const c of String(name)) hash = (hash * 31 + c.codePointAt(0)) >>> 0;
  return colour(hash);
}
const devices = new Map();
export function deviceColour(name) {
  if (!devices.has(name)) devices.set(name, colour(devices.size));
  return devices.get(name);
}

export function number(x, digits = 4) {
  if (x === null || x === undefined || Number.isNaN(x)) return "–";
  if (typeof x !== "number") return String(x);
  if (x === 0) return "0";
  const size = Math.abs(x);
  if (Number.isInteger(x) && size < 1e15) return x.toLocaleString("en-US").replaceAll(",", "\u202f");
  if (size >= 1e6 || size < 1e-4) return x.toExponential(Math.max(0, digits - 2));
  return String(Number(x.toPrecision(digits)));
}

export function bytes(n, traffic) {
  if (n === null || n === undefined) return "–";
  const base = traffic ? 1000 : 1024, units = traffic ? ["B", "kB", "MB", "GB", "TB"] : ["B", "KiB", "MiB", "GiB", "TiB"];
  let k = 0;
  while (n >= base && k < units.length - 1) { n /= base; k++; }
  return `${n >= 100 || k === 0 ? Math.round(n) : n >= 10 ? n.toFixed(1) : n.toFixed(2)} ${units[k]}`;
}

export function ms(t) {
  if (t === null || t === undefined) return "–";
  const digits = (x) => Number(x.toPrecision(3)), units = [["ns", 1e6], ["µs", 1e3], ["ms", 1]]; // 999.7 µs are 1 ms
  const [unit, per] = t === 0 ? units[2] : units.find(([, by]) => digits(t * by) < 1000) ?? ["s", 1e-3];
  return unit === "s" ? `${(t * per).toPrecision(3)} s` : `${digits(t * per)} ${unit}`;
}
// Less is no estimate: another op has the work in the plan.
export const planned = (t) => (t < 1e-3 ? "–" : ms(t));
export const percent = (x) => (x === null || x === undefined ? "–" : `${(100 * x).toFixed(x < 0.1 ? 1 : 0)} %`);

// A line of text that follows the pointer.
let tipElement = null;
export function tip(event, text) {
  if (!text) { tipElement?.remove(); tipElement = null; return; }
  if (!tipElement) { tipElement = h("div", { class: "tip" }); document.body.append(tipElement); }
  tipElement.textContent = text;
  const x = Math.min(event.clientX + 14, innerWidth - tipElement.offsetWidth - 8);
  const y = Math.min(event.clientY + 14, innerHeight - tipElement.offsetHeight - 8);
  tipElement.style.left = `${Math.max(4, x)}px`;
  tipElement.style.top = `${Math.max(4, y)}px`;
}

// A table whose columns sort by a press on their heads. columns: [{name, value(row), show(row)?, number?, wrap?}]
export function table(columns, rows, options = {}) {
  const state = { column: options.sort ?? -1, down: options.down ?? true };
  const body = h("tbody"), heads = [];
  const draw = () => {
    const sorted = [...rows];
    const column = columns[state.column];
    if (column) sorted.sort((a, b) => compare(column.value(a), column.value(b)) * (state.down ? -1 : 1));
    clear(body, sorted.slice(0, options.most ?? 2000).map((row) => h("tr", options.onrow && { tabindex: "0", onclick: () => options.onrow(row), onkeydown: (event) => { if (event.key === "Enter") options.onrow(row); } },
      columns.map((c) => h("td", { class: [c.number && "number", c.wrap && "wrap"].filter(Boolean).join(" ") || undefined,
        title: c.show || c.wrap ? undefined : text(c.value(row)) }, c.show ? c.show(row) : c.number ? number(c.value(row)) : text(c.value(row)))))));
    heads.forEach((head, i) => head.setAttribute("aria-sort", i !== state.column ? "none" : state.down ? "descending" : "ascending"));
  };
  const head = columns.map((c, i) => {
    const cell = h("th", { scope: "col", class: c.number ? "number" : undefined }, c.plain ? c.name : h("button", { onclick: () => {
      state.down = state.column === i ? !state.down : Boolean(c.number);
      state.column = i;
      draw();
    } }, c.name));
    heads.push(cell);
    return cell;
  });
  draw();
  return h("div", { class: "table-wrap", tabindex: "0", role: "region", "aria-label": options.label ?? "Table" },
    h("table", {}, h("thead", {}, h("tr", {}, head)), body));
}
const text = (x) => (x === null || x === undefined ? "–" : typeof x === "number" ? number(x) : String(x));
function compare(a, b) {
  const none = (x) => x === null || x === undefined || Number.isNaN(x);
  if (none(a) || none(b)) return none(a) - none(b);
  return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
}

// Bars beside names. items: [{name, value, label, parts?: [[share of the largest, colour, text]]}]
export function bars(items) {
  const most = Math.max(...items.map((i) => i.value), 1e-30);
  return h("div", { class: "bars" }, items.map((item) => h("div", { class: "row" },
    h("span", { class: "name", title: item.name }, item.name),
    h("span", { class: "track" }, (item.parts ?? [[item.value, item.colour ?? "var(--accent)"]]).map(([value, fill, title]) =>
      h("i", { style: { width: `${100 * value / most}%`, background: fill }, title }))),
    h("span", { class: "value" }, item.label ?? number(item.value)))));
}

export function canvas(width, height) {
  const element = h("canvas"), scale = window.devicePixelRatio || 1;
  element.width = Math.round(width * scale);
  element.height = Math.round(height * scale);
  element.style.width = `${width}px`; // and narrower where there is less room, of the same form
  element.style.aspectRatio = `${width} / ${height}`;
  const context = element.getContext("2d");
  context.scale(scale, scale);
  return [element, context];
}
