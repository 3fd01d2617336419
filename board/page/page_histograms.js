// How the numbers of parameters, gradients and activations are spread, step by step.
import { get } from "/api.js";
import { tagPage } from "/tags.js";
import { h, canvas, css, number, tip } from "/dom.js";

let mode = "ridges", wide = 400; // pixels of a picture: as many as a card has

export function show(place) {
  const columns = Math.max(1, Math.floor((place.clientWidth + 16) / 446));
  wide = Math.max(260, Math.floor((place.clientWidth - 16 * (columns - 1)) / columns) - 30);
  return tagPage(place, {
    kind: "histogram", most: 24,
    lead: "Each outline is one step, the latest in front; the heat map has a column for each step.",
    missing: "Histograms are recorded every summary.every steps of what the configuration names:",
    command: 'summary:\n  every: 100\n  parameters: ["*"]\n  gradients: ["*"]\n  activations: ["*/relu"]',
    controls: (redraw) => h("label", {}, "as", h("select", { onchange: (event) => { mode = event.target.value; redraw(); } },
      ["ridges", "heat map"].map((name) => h("option", { value: name, selected: name === mode }, name)))),
    draw: card,
  });
}

async function card(tag, run) {
  const answer = await get("histograms", { run: run.id, id: tag.id, limit: mode === "ridges" ? 30 : 120 });
  const last = answer.histograms[answer.histograms.length - 1];
  const [element, context] = canvas(wide, 210);
  element.setAttribute("role", "img");
  element.setAttribute("aria-label", `Histogram of ${tag.tag} over ${answer.n} steps`);
  const filled = answer.histograms.filter((one) => one.limits.length);
  const range = [Math.min(...filled.map((one) => one.least)), Math.max(...filled.map((one) => one.greatest))];
  if (filled.length) (mode === "ridges" ? ridges : heat)(context, filled, range, element);
  return h("section", { class: "card" }, h("div", { class: "card-head" }, h("h2", {}, tag.tag)), element,
    h("div", { class: "legend" }, last ? `step ${last.step}: ${number(last.n)} numbers, mean ${number(last.mean)}, deviation ${number(last.deviation)}, from ${number(last.least)} to ${number(last.greatest)}` : ""));
}

const span = (range) => (range[1] > range[0] ? range[1] - range[0] : 1);
// Numbers per width, so that buckets of different widths can be compared.
function density(one) {
  return one.counts.map((count, i) => count / Math.max(1e-30, one.limits[i] - (i ? one.limits[i - 1] : one.least)));
}

function axis(context, range) {
  context.fillStyle = css("--quiet");
  context.font = "11px system-ui, sans-serif";
  context.textAlign = "left";
  context.fillText(number(range[0], 3), 8, 204);
  context.textAlign = "right";
  context.fillText(number(range[1], 3), wide - 8, 204);
}

function ridges(context, list, range, element) {
  const x = (v) => 8 + ((wide - 16) * (v - range[0])) / span(range), most = Math.max(...list.flatMap(density), 1e-30);
  list.forEach((one, k) => {
    const base = list.length > 1 ? 62 + (124 * k) / (list.length - 1) : 186, heights = density(one);
    context.beginPath();
    context.moveTo(x(one.least), base);
    heights.forEach((d, i) => {
      const y = base - (54 * d) / most;
      context.lineTo(x(i ? one.limits[i - 1] : one.least), y);
      context.lineTo(x(one.limits[i]), y);
    });
    context.lineTo(x(one.greatest), base);
    context.closePath();
    context.fillStyle = css("--card");
    context.fill();
    context.globalAlpha = 0.15 + (0.5 * (k + 1)) / list.length;
    context.fillStyle = css("--accent");
    context.fill();
    context.globalAlpha = 1;
    context.strokeStyle = css("--accent");
    context.lineWidth = 0.8;
    context.stroke();
  });
  axis(context, range);
  element.addEventListener("pointermove", (event) => {
    const y = event.offsetY * (210 / element.clientHeight), k = list.length > 1 ? Math.round(((y - 62) / 124) * (list.length - 1)) : 0, one = list[Math.min(list.length - 1, Math.max(0, k))];
    tip(event, `step ${one.step}\nmean ${number(one.mean)}, deviation ${number(one.deviation)}\nfrom ${number(one.least)} to ${number(one.greatest)}`);
  });
  element.addEventListener("pointerleave", (event) => tip(event, ""));
}

function heat(context, list, range) {
  const width = (wide - 16) / list.length, y = (v) => 188 - (180 * (v - range[0])) / span(range), accent = css("--accent");
  list.forEach((one, k) => {
    const heights = density(one), most = Math.max(...heights, 1e-30);
    heights.forEach((d, i) => {
      const top = y(one.limits[i]), bottom = y(i ? one.limits[i - 1] : one.least);
      context.globalAlpha = Math.sqrt(d / most);
      context.fillStyle = accent;
      context.fillRect(8 + k * width, top, Math.max(1, width - 0.5), Math.max(1, bottom - top));
    });
  });
  context.globalAlpha = 1;
  context.fillStyle = css("--quiet");
  context.font = "11px system-ui, sans-serif";
  context.fillText(`step ${list[0].step}`, 8, 204);
  context.textAlign = "right";
  context.fillText(`step ${list[list.length - 1].step}`, wide - 8, 204);
}
