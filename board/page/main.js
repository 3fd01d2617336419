// The frame around the pages: menu, which runs are chosen, theme, and news from the server.
import { get, listen } from "/api.js";
import { h, clear, colour, empty } from "/dom.js";

const PAGES = [
  ["Training", [["runs", "Runs"], ["scalars", "Scalars"], ["compare", "Compare"], ["parameters", "Parallel view"]]],
  ["Values", [["histograms", "Histograms"], ["tensors", "Tensors"], ["images", "Images"], ["texts", "Text"], ["landscape", "Landscape"]]],
  ["Model", [["lineage", "Lineage"], ["graph", "Graph"], ["data", "Data"], ["memory", "Memory"]]],
  ["Time", [["steps", "Step trace"], ["operators", "Operators"], ["timeline", "Timeline"], ["cluster", "Cluster"], ["advice", "Advice"]]],
];
const OF_MANY = new Set(["runs", "scalars", "compare", "parameters"]);

// What every page gets. whose: the rank or worker of a job whose steps are shown; {}: the first one's. Runs that are chosen are on the pages of many runs; the one in focus is on the others.
export const board = { runs: [], directory: "", selected: new Set(), focus: null, page: "runs", chosen: false, whose: {} };
let leave = null, drawn = 0;

export function runColour(id) { return colour(board.runs.findIndex((run) => run.id === id)); }
export function chosenRuns() { return board.runs.filter((run) => board.selected.has(run.id)); }
export function focusRun() { return board.runs.find((run) => run.id === board.focus); }

function readAddress() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const parameters = new URLSearchParams(query);
  const known = PAGES.flatMap(([, pages]) => pages).some(([page]) => page === path);
  board.page = known ? path : "runs";
  if (parameters.has("runs")) { board.selected = new Set(parameters.get("runs").split(",").filter(Boolean)); board.chosen = true; }
  if (parameters.has("run")) board.focus = parameters.get("run");
  board.whose = Object.fromEntries([...parameters].filter(([key]) => key === "rank" || key === "worker"));
}

export function go(page, change = {}) {
  if (change.focus) board.focus = change.focus;
  if (change.focus || change.whose) board.whose = change.whose ?? {};
  const parameters = new URLSearchParams();
  if (board.chosen) parameters.set("runs", [...board.selected].join(","));
  if (board.focus) parameters.set("run", board.focus);
  for (const [key, value] of Object.entries(board.whose)) parameters.set(key, value);
  location.hash = `#/${page}${parameters.size ? `?${parameters}` : ""}`;
}

export function choose(ids) {
  board.selected = new Set(ids);
  board.chosen = true;
  go(board.page);
}

function drawMenu() {
  clear(document.getElementById("menu"), h("div", { class: "inner" }, PAGES.map(([title, pages]) => [h("h2", {}, title),
    pages.map(([page, name]) => h("a", { href: `#/${page}`, "aria-current": page === board.page ? "page" : undefined,
      onclick: (event) => { event.preventDefault(); closeMenu(); go(page); } }, name))])));
}

function drawFocus() {
  const many = OF_MANY.has(board.page), select = document.getElementById("focus");
  document.getElementById("focus-label").hidden = many || !board.runs.length;
  clear(select, board.runs.map((run) => h("option", { value: run.id }, run.name)));
  select.value = board.focus ?? "";
}

async function draw() {
  const turn = ++drawn, page = document.getElementById("page");
  drawMenu();
  drawFocus();
  if (leave) { leave(); leave = null; }
  const name = PAGES.flatMap(([, pages]) => pages).find(([id]) => id === board.page)[1];
  document.title = `${name} – Tandem board`;
  const content = h("div");
  page.setAttribute("aria-busy", "true");
  clear(page, h("h1", {}, name), content);
  if (!board.runs.length) {
    clear(content, empty("No run in this folder yet", `${board.directory} holds no run.json and no event file. A training makes them:`,
      `tandem train samples/wide_deep/wide_deep.yaml --run ${board.directory}/first`));
    page.setAttribute("aria-busy", "false");
    return;
  }
  try {
    const module = await import(`/page_${board.page}.js`);
    if (turn === drawn) leave = await module.show(content) ?? null;
    if (turn !== drawn && leave) { leave(); leave = null; }
  } catch (error) {
    clear(content, h("div", { class: "note", role: "alert" }, error.message));
  }
  if (turn === drawn) page.setAttribute("aria-busy", "false");
}

async function load() {
  const answer = await get("runs");
  board.runs = answer.runs;
  board.directory = answer.directory;
  board.more = answer.more;
  if (!board.chosen) board.selected = new Set([...answer.runs].sort((a, b) => b.written - a.written).slice(0, 8).map((run) => run.id));
  if (!focusRun()) board.focus = [...answer.runs].sort((a, b) => b.written - a.written)[0]?.id ?? null;
}

const watchers = new Set();
// For pages that take in what is new without being drawn again.
export function onChange(watcher) { watchers.add(watcher); return () => watchers.delete(watcher); }

async function changed() {
  const none = !board.runs.length;
  await load();
  drawFocus();
  if (none) draw();
  else for (const watcher of watchers) watcher();
}

function closeMenu() {
  document.getElementById("menu").classList.remove("open");
  document.getElementById("menu-button").setAttribute("aria-expanded", "false");
}

function toggleTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  try { localStorage.setItem("theme", root.dataset.theme); } catch { /* no storage: until the page is closed */ }
  draw();
}

document.getElementById("theme").addEventListener("click", toggleTheme);
document.getElementById("focus").addEventListener("change", (event) => go(board.page, { focus: event.target.value }));
document.getElementById("menu-button").addEventListener("click", (event) => {
  const open = document.getElementById("menu").classList.toggle("open");
  event.currentTarget.setAttribute("aria-expanded", String(open));
});
addEventListener("hashchange", () => { readAddress(); draw(); });
addEventListener("keydown", (event) => {
  const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
  if (event.key === "Escape") closeMenu();
  if (!typing && !event.ctrlKey && !event.metaKey && !event.altKey && event.key.toLowerCase() === "t") toggleTheme();
});

readAddress();
const live = document.getElementById("live");
try {
  await load();
  draw();
  listen(() => changed().catch(() => {}), (on) => { live.textContent = on ? "live" : "not connected"; live.classList.toggle("on", on); });
} catch (error) {
  clear(document.getElementById("page"), h("div", { class: "note", role: "alert" }, error.message));
}
