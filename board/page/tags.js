// What the pages of values share: the tags of the run in focus, with a search.
import { get } from "/api.js";
import { focusRun } from "/main.js";
import { h, clear, empty } from "/dom.js";

// Calls `draw(tag, run)` for each of at most `most` tags that match; each must give an element, or a promise of one.
export async function tagPage(place, { kind, lead, missing, command, most, controls, draw }) {
  const run = focusRun(), list = h("div"), note = h("p", { class: "lead", role: "status" });
  let turn = 0;
  async function redraw() {
    const mine = ++turn, answer = await get("tags", { run: run.id, kind, search: search.value, limit: most });
    if (mine !== turn) return;
    note.textContent = answer.total > most ? `${most} of ${answer.total}; the search finds the others` : "";
    if (!answer.total) {
      clear(list, empty(search.value ? "Nothing matches" : `No ${kind} in this run`, search.value ? "" : missing, search.value ? "" : command));
      return;
    }
    const cards = [];
    for (const tag of answer.tags) {
      cards.push(await draw(tag, run));
      if (mine !== turn) return;
    }
    clear(list, h("div", { class: { histogram: "cards", image: "images", text: "cards" }[kind] ?? "" }, cards));
  }
  const search = h("input", { type: "search", placeholder: "search", "aria-label": `Search ${kind}s`, oninput: redraw });
  clear(place, h("p", { class: "lead" }, lead), h("div", { class: "bar" }, search, controls?.(redraw)), note, list);
  await redraw();
  return () => { turn++; };
}
