// Curves over the recorded steps: what each step took, lane by lane and pair by pair.
import { get } from "/api.js";
import { chart } from "/chart.js";
import { h, clear, colour, empty, ms } from "/dom.js";

export const CAUSES = [["subgraph_ms", "ops", "#2f6fed"], ["copy_ms", "copies", "#e0752d"], ["wake_up_ms", "waking a lane", "#c9a227"], ["data_ms", "waiting for data", "#d1495b"], ["host_ms", "the run's own thread", "#8a63d2"], ["unknown_ms", "not recorded", "#7a8194"]];
export const WORK = [["data_wait_ms", "data wait"], ["forward_ms", "forward"], ["backward_ms", "backward"], ["update_ms", "update"], ["to_device_ms", "copies to devices"], ["to_host_ms", "copies to the host"],
  ["all_reduce_ms", "all-reduce"], ["pull_ms", "pull"], ["push_ms", "push"], ["checkpoint_ms", "checkpoint"], ["callback_ms", "callback"], ["tail_ms", "tail"]];
const AT_FIRST = 8;

const some = (values) => values.some((v) => v > 0);

// [group, [[name, values, colour]]], without what is nothing in every step.
function groups(curves) {
  const interval = ["interval", curves.step.interval_ms, "#7a8194"], list = [];
  const add = (title, series) => {
    const there = series.filter(([, values]) => values && some(values)).map(([name, values, fill], i) => [name, values, fill ?? colour(i - (series[0] === interval))]);
    if (there.length) list.push([title, there]);
  };
  add("what steps did", [interval, ...WORK.map(([key, name]) => [name, curves.step[key]])]);
  add("critical path, by cause", [interval, ...CAUSES.map(([key, name, fill]) => [name, curves.critical_path[key], fill])]);
  add("subgraphs and copies", curves.subgraphs.map((s) => [s.name, s.ms]));
  add("lanes at work", curves.lanes.map((l) => [l.name, l.busy_ms]));
  add("at work at the same time", curves.overlaps.map((o) => [`${o.a} and ${o.b}`, o.ms]));
  return list;
}

// A chart of one group at a time; marks are pressed to leave a curve out. `of`: of which run, and of a job whose. Returns what ends it.
export function curvesCard(of, place) {
  const state = { group: 0, hidden: new Set() };
  let all = null, plot = null;
  const marks = h("div", { class: "marks", role: "group", "aria-label": "Curves" });
  const choice = h("select", { "aria-label": "Which curves", onchange: (event) => { state.group = Number(event.target.value); choose(); } });

  function choose() {
    state.hidden = new Set(all[state.group][1].slice(AT_FIRST).map(([name]) => name));
    draw();
  }
  function draw() {
    clear(marks, all[state.group][1].map(([name, , fill]) => h("button", { "aria-pressed": String(!state.hidden.has(name)), onclick: (event) => {
      if (!state.hidden.delete(name)) state.hidden.add(name);
      event.currentTarget.setAttribute("aria-pressed", String(!state.hidden.has(name)));
      plot.draw();
    } }, h("i", { class: "swatch", style: { background: fill } }), name)));
    return plot.draw();
  }
  async function load(range) {
    const inside = (x) => range.from === undefined || (x >= range.from - 1 && x <= range.to + 1);
    return all[state.group][1].filter(([name]) => !state.hidden.has(name)).map(([name, values, fill]) => ({ name, colour: fill, unit: ms,
      points: values.map((v, i) => [all.steps[i], v, v, v, v]).filter(([x]) => inside(x)) }));
  }
  async function begin() {
    const curves = await get("curves", of);
    all = groups(curves);
    all.steps = curves.steps;
    if (!all.length) return clear(place, empty("No curve", "No step of this recording has a time.", "tandem train CONFIG --profile"));
    clear(choice, all.map(([title], i) => h("option", { value: i }, title)));
    plot = chart({ title: "Over steps, ms", height: 260, load, buttons: choice });
    clear(place, plot.card);
    plot.card.append(marks);
    return draw();
  }
  return { ready: begin(), end: () => plot?.destroy() };
}
