// Images of batches, step by step.
import { imageAddress, get } from "/api.js";
import { tagPage } from "/tags.js";
import { h } from "/dom.js";

export function show(place) {
  return tagPage(place, {
    kind: "image", most: 48,
    lead: "Samples of the batches that were trained on, from the least number (black) to the greatest (white).",
    missing: "Images of batches are recorded every summary.every steps where the data has images:",
    command: "summary: {every: 100, images: 4}",
    draw: async (tag, run) => {
      const { steps } = await get("images", { run: run.id, id: tag.id });
      const image = h("img", { src: imageAddress(run.id, tag.id, steps[steps.length - 1]), alt: `${tag.tag} at step ${steps[steps.length - 1]}` });
      const caption = h("span", {}, `step ${steps[steps.length - 1]}`);
      const slider = h("input", { type: "range", min: 0, max: steps.length - 1, "aria-label": `Step of ${tag.tag}`, style: { width: "100%" }, oninput: () => {
        const step = steps[Number(slider.value)];
        image.src = imageAddress(run.id, tag.id, step);
        image.alt = `${tag.tag} at step ${step}`;
        caption.textContent = `step ${step}`;
      } });
      slider.value = String(steps.length - 1);
      return h("figure", {}, image, h("figcaption", {}, tag.tag, " ", caption), slider);
    },
  });
}
