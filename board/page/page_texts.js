// Texts of a run, step by step: its configuration, and rows of the batches where the data is text.
import { get } from "/api.js";
import { tagPage } from "/tags.js";
import { h } from "/dom.js";

export function show(place) {
  return tagPage(place, {
    kind: "text", most: 24,
    lead: "What was written at the steps that recorded texts; the newest is shown first.",
    missing: "The configuration is recorded at the start of each training; rows of batches every summary.every steps, where the data is text:",
    command: "summary: {every: 100, texts: 4}",
    draw: card,
  });
}

// Fences of Markdown are for readers that draw it.
const plain = (text) => text.replace(/^```\w*\n/, "").replace(/\n?```\s*$/, "");

async function card(tag, run) {
  const { texts } = await get("texts", { run: run.id, id: tag.id });
  const view = h("pre", { tabindex: "0", class: "text", "aria-label": `Text of ${tag.tag}` }), shown = h("output");
  const slider = h("input", { type: "range", min: 0, max: texts.length - 1, "aria-label": `Step of ${tag.tag}`, oninput: () => draw() });
  const draw = () => {
    const one = texts[Number(slider.value)];
    view.textContent = plain(one.text);
    shown.textContent = `step ${one.step}`;
  };
  slider.value = String(texts.length - 1);
  draw();
  return h("section", { class: "card" }, h("div", { class: "card-head" }, h("h2", {}, tag.tag), texts.length > 1 && slider, shown), view);
}
