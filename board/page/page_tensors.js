// Numbers of recorded tensors: any slice as a table, step by step.
import { get } from "/api.js";
import { tagPage } from "/tags.js";
import { h, clear, number } from "/dom.js";

export function show(place) {
  return tagPage(place, {
    kind: "tensor", most: 12,
    lead: "A slice has a range for each dimension, as in 2:5 or :, or an index such as 0; what it leaves is shown as rows and columns.",
    missing: "Numbers of parameters are recorded every summary.every steps where the configuration names them:",
    command: 'summary:\n  every: 100\n  tensors: ["top.*"]',
    draw: card,
  });
}

const standard = (shape) => shape.map((size, i) => (i < shape.length - 2 ? "0" : size > 12 ? `0:${i === shape.length - 1 ? 12 : 16}` : ":")).join(", ");

async function card(tag, run) {
  const view = h("div"), facts = h("div", { class: "legend", role: "status" });
  let answer = await get("tensors", { run: run.id, id: tag.id, slice: "" });
  const slice = h("input", { type: "text", value: standard(answer.shape), "aria-label": `Slice of ${tag.tag}`, size: 18 });
  const slider = h("input", { type: "range", min: 0, max: answer.steps.length - 1, "aria-label": `Step of ${tag.tag}`, value: answer.steps.length - 1 });
  slider.value = String(answer.steps.length - 1);
  const shown = h("output", {}, `step ${answer.step}`);
  async function redraw() {
    try {
      answer = await get("tensors", { run: run.id, id: tag.id, step: answer.steps[Number(slider.value)], slice: slice.value.replaceAll(" ", "") });
    } catch (error) {
      clear(facts, h("span", { class: "bad" }, error.message));
      return;
    }
    shown.textContent = `step ${answer.step}`;
    clear(facts, `shape ${answer.shape.join(" × ") || "one number"}; of ${number(answer.n)} numbers: mean ${number(answer.mean)}, from ${number(answer.least)} to ${number(answer.greatest)}`,
      answer.not_finite ? h("span", { class: "bad" }, `${answer.not_finite} not finite`) : "");
    clear(view, grid(answer, tag.tag));
  }
  slice.addEventListener("change", redraw);
  slider.addEventListener("input", redraw);
  await redraw();
  return h("section", { class: "card" }, h("div", { class: "card-head" }, h("h2", {}, tag.tag), h("label", {}, "slice ", slice), slider, shown), view, facts);
}

// The last two ranges that are no indices; what is before them must be indices to be shown as one table.
function grid(answer, name) {
  const open = answer.slice.map((range, i) => ({ ...range, i, size: range.end - range.begin })).filter((range) => !range.single);
  const columns = open.length ? open[open.length - 1].size : 1, rows = columns ? Math.ceil(answer.n_shown / columns) : 0;
  const first = open.length ? open[open.length - 1].begin : 0, top = open.length > 1 ? open[open.length - 2].begin : 0;
  const size = Math.max(Math.abs(answer.least), Math.abs(answer.greatest)) || 1, wide = Math.min(columns, 64), tall = Math.min(rows, 100);
  const cell = (value) => {
    const share = value === null ? 0 : Math.abs(value) / size, hue = value < 0 ? "224, 117, 45" : "47, 111, 237";
    return h("td", { style: { backgroundColor: value === null ? "#ffb4ab" : blend(hue, share) } }, value === null ? "none" : number(value, 3));
  };
  return h("div", { class: "table-wrap", tabindex: "0", role: "region", "aria-label": `Numbers of ${name}` }, h("table", { class: "heat" },
    h("thead", {}, h("tr", {}, h("td", {}), Array.from({ length: wide }, (_, c) => h("th", { scope: "col" }, String(first + c))))),
    h("tbody", {}, Array.from({ length: tall }, (_, r) => h("tr", {}, h("th", { scope: "row" }, open.length > 2 ? `#${r}` : String(top + r)),
      Array.from({ length: Math.max(0, Math.min(wide, answer.values.length - r * columns)) }, (_, c) => cell(answer.values[r * columns + c])))))),
  wide < columns || tall < rows ? h("p", { class: "lead" }, `The first ${tall} of ${rows} rows and ${wide} of ${columns} columns; a smaller slice shows the others.`) : "");
}

// A colour over white, light enough for dark text.
function blend(rgb, share) {
  const mixed = rgb.split(",").map((c) => Math.round(255 + (Number(c) - 255) * 0.62 * share));
  return `rgb(${mixed.join(", ")})`;
}
