// What would make this run better, with numbers.
import { get } from "/api.js";
import { focusRun } from "/main.js";
import { h, clear, ms, number, empty } from "/dom.js";
import { profileOf, whoseBar } from "/whose.js";

export async function show(place) {
  const run = await get("run", { run: focusRun().id }), plan = run.lineage?.plan;
  const profile = await profileOf(run.id).catch(() => null);
  if (!plan && !profile) {
    clear(place, empty("Nothing to judge by", "Advice comes from the plan in run.json and from a recorded trace.", "tandem train CONFIG --profile"));
    return;
  }
  const items = [...fromProfile(profile), ...fromPlan(plan)];
  clear(place, h("p", { class: "lead" }, "From the plan, and from the recorded steps where there are some."), profile && whoseBar(profile),
    items.length ? items.map(([title, text, why]) => h("section", { class: "card advice" }, h("h2", {}, title), h("p", {}, text), why && h("div", { class: "legend" }, why)))
      : h("div", { class: "card" }, h("p", {}, "Nothing stands out: no placement contradicts its figures, and no lane waits for what a setting would change.")),
    !profile && h("div", { class: "card" }, h("p", { class: "lead" }, "Advice from measured times needs a trace: tandem train CONFIG --profile.")));
}

// What tandem profile itself advises, in its own words.
function fromProfile(profile) {
  return (profile?.advice ?? []).map((advice) => [advice.rule.replaceAll("_", " ").replace(/^./, (c) => c.toUpperCase()) + (advice.gain_ms > 0 ? `: could save up to ${ms(advice.gain_ms)} a step` : ""), advice.text,
    `rule ${advice.rule}: measured ${number(advice.measured, 3)}, said from ${number(advice.threshold, 3)} on`]);
}

function fromPlan(plan) {
  const doubtful = (plan?.flags ?? []).map((flag) => [`${flag.subgraph} may be on the wrong side`,
    `It is memory-bound (${number(flag.flops_per_byte, 2)} flops per byte) and takes ${ms(flag.ms)}; its copies take ${ms(flag.copies_ms)}. On the host there would be none: a rule in placement.rules moves it.`]);
  const moved = (plan?.moved ?? []).map((op) => [`${op.op} runs on the host`, op.why]);
  return [...doubtful, ...moved];
}
