// The ranks of a distributed job beside each other: their steps, what they waited for from each other, who came late, and ids.
import { get } from "/api.js";
import { focusRun } from "/main.js";
import { h, clear, table, empty, svg, bytes, ms, number, percent, colour, tip } from "/dom.js";
import { placeName as nameOf } from "/whose.js";

const WORK = [["pull_ms", "pull", "#2f6fed"], ["push_ms", "push", "#e0752d"], ["sum_ms", "sums", "#8a63d2"], ["answer_ms", "answers", "#2a9d6f"], ["apply_ms", "updates", "#c9a227"]];

export async function show(place) {
  const cluster = await get("cluster", { run: focusRun().id }).catch((error) => ({ error }));
  if (cluster.error) {
    clear(place, empty("No distributed job here", cluster.error.message.split("\n")[0], "mpirun -n 4 tandem train CONFIG --profile"));
    return;
  }
  const { ranks, sums } = cluster, met = sums.filter((sum) => sum.order.length > 1);
  const worst = Math.max(0, ...ranks.map((rank) => rank.clock_error_ns));
  clear(place, h("p", { class: "lead" }, `${ranks.length} ranks, steps ${cluster.first_step} to ${cluster.first_step + cluster.steps - 1}; all times are on the first worker's clock, ${worst ? `wrong by ${ms(worst / 1e6)} at most` : "which the ranks share"}.`),
    ranks.filter((rank) => rank.problem || rank.cut).map((rank) => h("div", { class: "note" }, `${nameOf(rank)}: ${rank.problem || `its recording is cut off after ${number(rank.records)} records; what is before is shown`}`)),
    figures(ranks, met), waits(ranks), met.length > 0 && arrivals(ranks, met, place.clientWidth - FRAME), rankTable(ranks), staleness(ranks), keys(ranks));
}

const figure = (name, value) => h("div", { class: "figure" }, h("b", {}, value), h("span", {}, name));

function figures(ranks, met) {
  const workers = ranks.filter((rank) => rank.step_ms > 0), slow = ranks.reduce((a, b) => (b.times_last > (a?.times_last ?? 0) ? b : a), null);
  return h("div", { class: "figures" }, figure("a step", workers.length ? ms(workers[0].step_ms) : "–"),
    figure("pulled a step, all workers", bytes(total(ranks, "pull_bytes"), true)), figure("pushed a step, all workers", bytes(total(ranks, "push_bytes"), true)),
    slow && figure(`last most often: ${nameOf(slow)}`, `${slow.times_last} of ${slow.met}`), slow && figure("the others wait for it alone", ms(slow.held_up_ms)),
    met.length > 0 && figure("from the first to the last", ms(met.reduce((sum, one) => sum + one.late_ms.at(-1), 0) / met.length)));
}
const total = (ranks, key) => ranks.reduce((sum, rank) => sum + rank[key], 0);

function waits(ranks) {
  const most = Math.max(1e-9, ...ranks.map((rank) => WORK.reduce((sum, [key]) => sum + rank[key], 0)));
  return h("div", { class: "card" }, h("h2", {}, "Between ranks, a step"), h("div", { class: "bars" }, ranks.map((rank) => {
    const whole = WORK.reduce((sum, [key]) => sum + rank[key], 0);
    return h("div", { class: "row" }, h("span", { class: "name" }, nameOf(rank)), h("span", { class: "track", role: "img", "aria-label": `${nameOf(rank)}: ${ms(whole)}` },
      WORK.map(([key, name, fill]) => h("i", { title: `${name}: ${ms(rank[key])}`, style: { width: `${(100 * rank[key]) / most}%`, background: fill } }))),
    h("span", { class: "value" }, ms(whole)));
  })), h("div", { class: "legend" }, WORK.map(([, name, fill]) => h("span", {}, h("i", { class: "swatch", style: { background: fill } }), name))),
  h("p", { class: "lead" }, "Pulls, pushes and sums of workers, waiting for others included; answers and updates of servers."));
}

// A column for each step, a mark for each rank: the higher, the later it came. As wide as there is room, and no higher for that.
const FRAME = 90, HEIGHT = 212;
function arrivals(ranks, met, room) {
  const width = Math.max(640, room, met.length * 18), slot = (width - 60) / met.length, most = Math.max(1e-6, ...met.map((sum) => sum.late_ms.at(-1)));
  const marks = met.map((sum, i) => svg("g", { role: "img", "aria-label": `step ${sum.step}: ${nameOf(ranks[sum.places.at(-1)])} came last, ${ms(sum.late_ms.at(-1))} after ${nameOf(ranks[sum.places[0]])}` },
    sum.places.map((at, k) => svg("circle", { cx: 54 + (i + 0.5) * slot, cy: 186 - (166 * sum.late_ms[k]) / most, r: 4, fill: colour(at),
      onpointermove: (event) => tip(event, `step ${sum.step}\n${nameOf(ranks[at])}: ${ms(sum.late_ms[k])} after the first`), onpointerleave: (event) => tip(event, "") })),
    i % Math.ceil(met.length / 20) === 0 && svg("text", { x: 54 + (i + 0.5) * slot, y: 206, "font-size": 11, "text-anchor": "middle", fill: "currentColor" }, sum.step)));
  return h("div", { class: "card" }, h("h2", {}, "How late each rank came to the sum of each step"),
    h("div", { class: "table-wrap", tabindex: "0", role: "region", "aria-label": "Arrivals" }, svg("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, role: "group", "aria-label": "How late each rank came" },
      svg("text", { x: 48, y: 24, "font-size": 11, "text-anchor": "end", fill: "currentColor" }, ms(most)), svg("text", { x: 48, y: 190, "font-size": 11, "text-anchor": "end", fill: "currentColor" }, "0"), marks)),
    h("div", { class: "legend" }, ranks.map((rank, at) => rank.met > 0 && h("span", {}, h("i", { class: "swatch", style: { background: colour(at) } }), nameOf(rank)))));
}

function rankTable(ranks) {
  const time = (key) => ({ number: true, value: (rank) => rank[key], show: (rank) => (rank[key] > 0 ? ms(rank[key]) : "–") });
  return h("div", { class: "card" }, h("h2", {}, "Ranks"), table([
    { name: "rank", number: true, value: (rank) => rank.rank }, { name: "role", value: (rank) => rank.role }, { name: "host", value: (rank) => rank.host },
    { name: "a step", ...time("step_ms") }, { name: "pull", ...time("pull_ms") }, { name: "push", ...time("push_ms") }, { name: "sums", ...time("sum_ms") },
    { name: "late by", ...time("late_median_ms") }, { name: "last", number: true, value: (rank) => rank.times_last, show: (rank) => (rank.met ? `${rank.times_last} of ${rank.met}` : "–") },
    { name: "answers", ...time("answer_ms") }, { name: "updates", ...time("apply_ms") },
    { name: "answered", number: true, value: (rank) => rank.answer_bytes, show: (rank) => (rank.answer_bytes ? bytes(rank.answer_bytes, true) : "–") },
    { name: "clock", value: (rank) => rank.aligned, show: (rank) => (rank.clock_error_ns ? `± ${ms(rank.clock_error_ns / 1e6)}, drift ${number(rank.clock_drift_ppm, 3)} ppm` : rank.aligned) },
  ], ranks, { label: "Ranks" }));
}

// How far behind the slowest replica the rows were that each worker pulled; nothing where workers never run ahead.
function staleness(ranks) {
  const told = ranks.filter((rank) => rank.staleness.length > 0), most = Math.max(0, ...told.map((rank) => rank.staleness.length));
  const sum = (rank) => rank.staleness.reduce((all, n) => all + n, 0);
  return told.length > 0 && h("div", { class: "card" }, h("h2", {}, "How far behind pulls were, in windows"), h("div", { class: "bars" }, told.map((rank) => {
    const all = sum(rank), mean = rank.staleness.reduce((total, n, behind) => total + n * behind, 0) / all;
    return h("div", { class: "row" }, h("span", { class: "name" }, nameOf(rank)), h("span", { class: "track", role: "img", "aria-label": `${nameOf(rank)}: ${number(mean, 2)} windows in the mean` },
      rank.staleness.map((n, behind) => h("i", { title: `${behind} behind: ${number(n)} answers, ${percent(n / all)}`, style: { width: `${(100 * n) / all}%`, background: colour(behind) } }))),
    h("span", { class: "value" }, number(mean, 2)));
  })), h("div", { class: "legend" }, Array.from({ length: Math.min(most, 12) }, (_, behind) => h("span", {}, h("i", { class: "swatch", style: { background: colour(behind) } }), String(behind)))),
  h("p", { class: "lead" }, "Answers to a worker's pulls, by the windows of the slowest replica that its own were ahead of."));
}

function keys(ranks) {
  const told = ranks.flatMap((rank) => rank.keys.map((group) => ({ rank: rank.rank, ...group })));
  return told.length > 0 && h("div", { class: "card" }, h("h2", {}, "Ids of served tables"), table([
    { name: "tables", value: (group) => group.tables }, { name: "rank", number: true, value: (group) => group.rank },
    { name: "ids", number: true, value: (group) => group.ids }, { name: "ids to a row", number: true, value: (group) => group.ids_per_row, show: (group) => number(group.ids_per_row, 3) },
    { name: "most frequent ids", plain: true, wrap: true, value: (group) => group.hot.slice(0, 6).map((one) => `${one.id} (${percent(one.share)})`).join(", ") },
  ], told, { label: "Ids of served tables", sort: 2 }));
}
