// The stages that a row goes through, and what was seen of their waiting.
import { get } from "/api.js";
import { focusRun } from "/main.js";
import { h, clear, table, empty, ms, number } from "/dom.js";

export async function show(place) {
  const run = await get("run", { run: focusRun().id }), data = run.lineage?.data;
  if (!data) {
    clear(place, empty("No data pipeline", "run.json of this run says nothing of its data; tandem train writes it."));
    return;
  }
  const profile = await get("profile", { run: run.id }).catch(() => null);
  const waits = profile ? await workers(run) : null;
  clear(place, h("p", { class: "lead" }, `From ${number(data.train_rows)} rows to ${number(data.steps_per_epoch)} batches an epoch.`),
    h("div", { class: "card" }, h("ol", { class: "pipeline", "aria-label": "Stages" }, [...data.stages, { name: "session", does: "pulls a batch when a step is admitted" }].map((stage, i) => [
      i > 0 && h("li", { class: "arrow", "aria-hidden": "true" }, "→"), h("li", {}, h("b", {}, stage.name), h("span", {}, stage.does))]))),
    profile ? h("div", { class: "card" }, h("h2", {}, "Who waited for whom"),
      h("p", {}, profile.average.data_wait_ms > 0.02 * profile.average.interval_ms
        ? `Steps waited ${ms(profile.average.data_wait_ms)} of ${ms(profile.average.interval_ms)} for their batch: the data is a bottleneck. More workers (data.workers) or a cache (data.cache) help.`
        : `Steps waited ${ms(profile.average.data_wait_ms)} of ${ms(profile.average.interval_ms)} for their batch: the data keeps up.`), waits)
      : h("div", { class: "card" }, h("p", { class: "lead" }, "How long stages waited is known of a run that was recorded: tandem train CONFIG --profile.")),
    h("div", { class: "card" }, h("h2", {}, "Fields of a batch"), table([
      { name: "name", value: (f) => f.name }, { name: "elements a row", value: (f) => f.width, number: true },
      { name: "kind", value: (f) => (f.ragged ? "ragged" : "dense") }, { name: "rows of its table", number: true, value: (f) => f.table_rows || null },
    ], data.fields, { label: "Fields", most: 300 })));
}

// Times of the workers, from the trace: making batches, and waiting because enough are ready.
async function workers(run) {
  const line = await get("timeline", { run: run.id, pixels: 8000 }), sums = new Map();
  for (const row of line.rows) for (const box of row.boxes) {
    const name = box[6];
    if (!["data_fetch", "data_full", "data_wait"].includes(name)) continue;
    const key = `${row.thread}: ${{ data_fetch: "makes a batch", data_full: "waits, enough are ready", data_wait: "waits for a batch" }[name]}`;
    const sum = sums.get(key) ?? { name: key, ms: 0, n: 0 };
    sum.ms += box[2] / 1e6;
    sum.n += box[3];
    sums.set(key, sum);
  }
  if (!sums.size) return null;
  return table([{ name: "thread", value: (s) => s.name }, { name: "how often", number: true, value: (s) => s.n }, { name: "together", number: true, value: (s) => s.ms, show: (s) => ms(s.ms) }], [...sums.values()], { label: "Waiting", sort: 2 });
}
