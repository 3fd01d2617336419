// What would make this run better, with numbers.
import { get } from "/api.js";
import { focusRun } from "/main.js";
import { h, clear, ms, number, empty } from "/dom.js";

export async function show(place) {
  const run = await get("run", { run: focusRun().id }), plan = run.lineage?.plan;
  const profile = await get("profile", { run: run.id }).catch(() => null);
  if (!plan && !profile) {
    clear(place, empty("Nothing to judge by", "Advice comes from the plan in run.json and from a recorded trace.", "tandem train CONFIG --profile"));
    return;
  }
  const items = [...fromProfile(profile), ...fromPlan(plan), ...fromTimes(profile)];
  clear(place, h("p", { class: "lead" }, "From the plan, and from the recorded steps where there are some."),
    items.length ? items.map(([title, text]) => h("section", { class: "card advice" }, h("h2", {}, title), h("p", {}, text)))
      : h("div", { class: "card" }, h("p", {}, "Nothing stands out: no placement contradicts its figures, and no lane waits for what a setting would change.")),
    !profile && h("div", { class: "card" }, h("p", { class: "lead" }, "Advice from measured times needs a trace: tandem train CONFIG --profile.")));
}

// What tandem profile itself advises, in its own words.
function fromProfile(profile) {
  return (profile?.advice ?? []).map((advice) => [advice.title ?? advice.rule ?? "Advice", advice.text ?? advice.message ?? ""]).filter(([, text]) => text);
}

function fromPlan(plan) {
  const doubtful = (plan?.flags ?? []).map((flag) => [`${flag.subgraph} may be on the wrong side`,
    `It is memory-bound (${number(flag.flops_per_byte, 2)} flops per byte) and takes ${ms(flag.ms)}; its copies take ${ms(flag.copies_ms)}. On the host there would be none: a rule in placement.rules moves it.`]);
  const moved = (plan?.moved ?? []).map((op) => [`${op.op} runs on the host`, op.why]);
  return [...doubtful, ...moved];
}

function fromTimes(profile) {
  if (!profile || profile.advice) return [];
  const { average, lanes } = profile, items = [], path = average.critical_path, share = (x) => x / Math.max(1e-9, average.interval_ms);
  if (share(path.data_ms) > 0.05) items.push(["Steps wait for data", `${ms(path.data_ms)} of ${ms(average.interval_ms)} a step. More workers (data.workers), or a cache of parsed rows (data.cache), would win up to that.`]);
  if (share(path.copy_ms) > 0.1) items.push(["Copies stand on the critical path", `${ms(path.copy_ms)} of ${ms(average.interval_ms)} a step. The step trace lists the cut edges by what they cost.`]);
  if (share(path.wake_up_ms) > 0.1) items.push(["Lanes wake up late", `${ms(path.wake_up_ms)} of ${ms(average.interval_ms)} a step: the machine has fewer free cores than lanes, or subgraphs are very short.`]);
  for (const lane of lanes.filter((l) => l.idle_ms > 0.7 * (l.busy_ms + l.idle_ms) && !/to |from /.test(l.name)))
    items.push([`${lane.name} is idle most of the time`, `It works ${ms(lane.busy_ms)} of ${ms(lane.busy_ms + lane.idle_ms)} a step; work that is placed elsewhere could run there.`]);
  return items;
}
