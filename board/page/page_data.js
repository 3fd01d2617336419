// The stages that a row goes through, and what was seen of their waiting.
import { get } from "/api.js";
import { focusRun } from "/main.js";
import { h, clear, table, empty, ms, number } from "/dom.js";
import { profileOf, whoseBar } from "/whose.js";

export async function show(place) {
  const run = await get("run", { run: focusRun().id }), data = run.lineage?.data;
  if (!data) {
    clear(place, empty("No data pipeline", "run.json of this run says nothing of its data; tandem train writes it."));
    return;
  }
  const profile = await profileOf(run.id).catch(() => null);
  clear(place, h("p", { class: "lead" }, `From ${number(data.train_rows)} rows to ${number(data.steps_per_epoch)} batches an epoch.`),
    h("div", { class: "card" }, h("ol", { class: "pipeline", "aria-label": "Stages" }, [...data.stages, { name: "session", does: "pulls a batch when a step is admitted" }].map((stage, i) => [
      i > 0 && h("li", { class: "arrow", "aria-hidden": "true" }, "→"), h("li", {}, h("b", {}, stage.name), h("span", {}, stage.does))]))),
    profile ? h("div", { class: "card" }, h("h2", {}, "Who waited for whom"), whoseBar(profile),
      h("p", {}, profile.average.data_wait_ms > 0.02 * profile.average.interval_ms
        ? `Steps waited ${ms(profile.average.data_wait_ms)} of ${ms(profile.average.interval_ms)} for their batch: the data is a bottleneck. More workers (data.workers) or a cache (data.cache) help.`
        : `Steps waited ${ms(profile.average.data_wait_ms)} of ${ms(profile.average.interval_ms)} for their batch: the data keeps up.`), waiting(profile.data))
      : h("div", { class: "card" }, h("p", { class: "lead" }, "How long stages waited is known of a run that was recorded: tandem train CONFIG --profile.")),
    h("div", { class: "card" }, h("h2", {}, "Fields of a batch"), table([
      { name: "name", value: (f) => f.name }, { name: "elements a row", value: (f) => f.width, number: true },
      { name: "kind", value: (f) => (f.ragged ? "ragged" : "dense") }, { name: "rows of its table", number: true, value: (f) => f.table_rows || null },
    ], data.fields, { label: "Fields", most: 300 })));
}

function waiting(data) {
  const facts = { "workers": number(data.workers), "batches made": number(data.batches), "making one": ms(data.make_ms), "workers waited, for enough were ready": `${ms(data.workers_waited_ms)} in all`,
    "the run waited for batches": `${ms(data.run_waited_ms)} in all`, "steps that data held up": number(data.starved_steps), "batches ready when one was taken": `${number(data.queue_ready, 3)} of ${number(data.queue_places)}`, "times none was ready": number(data.queue_empty) };
  return h("dl", {}, Object.entries(facts).map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}
