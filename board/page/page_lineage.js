// One run: what it was made from, and what came of it.
import { get } from "/api.js";
import { focusRun } from "/main.js";
import { h, clear, table, number, bytes, ms, percent } from "/dom.js";

export async function show(place) {
  const run = await get("run", { run: focusRun().id }), lineage = run.lineage ?? {}, summary = run.summary ?? {};
  const figure = (name, value) => h("div", { class: "figure" }, h("b", {}, value), h("span", {}, name));
  clear(place, h("p", { class: "lead" }, `${run.name}: what the run was made from, and what came of it (run.json and summary.json).`),
    run.problem && h("div", { class: "note", role: "alert" }, run.problem),
    !run.lineage && h("div", { class: "note" }, "This run has no run.json: it was not made by tandem train, or by an older version."),
    h("div", { class: "figures" },
      figure("state", run.state), figure("steps", number(run.steps)), figure("loss", number(run.loss, 5)),
      Object.entries(run.metrics ?? {}).map(([name, value]) => figure(name, number(value, 5))),
      figure("step, median", ms(run.step_ms?.median)), figure("samples/s", number(run.samples_per_s, 4)),
      figure("parameters", number(run.parameters))),
    h("div", { class: "cards" },
      card("Run", { model: run.model, begun: run.started, seed: run.seed, version: run.version, host: lineage.host?.name, cores: lineage.host?.cores,
        "instruction set": lineage.host?.isa_override, "resumed": lineage.resumed ? `from step ${lineage.first_step}` : undefined,
        "configuration file": lineage.configuration_file, "checksum of parameters": run.parameters_checksum }),
      card("Data", { format: lineage.data?.format, "trained on": lineage.data?.train, "tested on": lineage.data?.test, "rows to train on": number(lineage.data?.train_rows),
        "rows to test on": number(lineage.data?.test_rows), "batch": lineage.data?.batch, "steps an epoch": lineage.data?.steps_per_epoch,
        stages: lineage.data?.stages?.map((s) => `${s.name} (${s.does})`).join(", ") }),
      card("Plan", { subgraphs: lineage.plan?.n_subgraphs, "cut edges": lineage.plan?.n_cut_edges, "step bound": ms(lineage.plan?.step_bound_ms),
        "copied to devices a step": bytes(lineage.plan?.to_device_bytes_per_step, true), "copied to the host a step": bytes(lineage.plan?.to_host_bytes_per_step, true),
        "copies and host work hidden": percent(run.overlap), optimised: lineage.plan?.optimized?.level, devices: summary.devices?.map((d) => `${d.name}: busy ${percent(d.busy)}`).join(", ") })),
    lineage.model?.tensors && h("div", { class: "card" }, h("h2", {}, "Parameters"), table([
      { name: "name", value: (t) => t.name }, { name: "shape", value: (t) => t.shape.join(" × ") },
      { name: "elements", number: true, value: (t) => t.shape.reduce((a, b) => a * b, 1) }, { name: "device", value: (t) => t.device },
    ], lineage.model.tensors, { label: "Parameters", sort: 2, most: 200 })),
    lineage.configuration && h("div", { class: "card" }, h("h2", {}, "Configuration"), h("pre", { tabindex: "0" }, lineage.configuration)));
}

function card(title, facts) {
  const rows = Object.entries(facts).filter(([, value]) => value !== undefined && value !== null && value !== "–");
  return h("section", { class: "card" }, h("h2", {}, title), rows.length ? h("dl", {}, rows.map(([name, value]) => [h("dt", {}, name), h("dd", {}, String(value))])) : h("p", { class: "lead" }, "Not recorded."));
}
