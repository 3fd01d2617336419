// What each device holds: planned and seen, and the largest tenants.
import { get } from "/api.js";
import { focusRun } from "/main.js";
import { chart } from "/chart.js";
import { h, clear, table, empty, bytes, number, colour, deviceColour, percent } from "/dom.js";
import { profileOf, whoseBar } from "/whose.js";

export async function show(place) {
  const run = await get("run", { run: focusRun().id }), plan = run.lineage?.plan;
  if (!plan) {
    clear(place, empty("No plan", "run.json of this run holds no plan; tandem train writes it before the first step."));
    return null;
  }
  const profile = await profileOf(run.id).catch(() => null), charts = [];
  const seen = new Map((run.summary?.devices ?? []).map((device) => [device.name, device]));
  clear(place, h("p", { class: "lead" }, "Of each device: what the plan gives to parameters, optimizer state and to everything that one step makes, beside what was in use at most."),
    h("div", { class: "cards" }, plan.devices.map((device) => card(device, seen.get(device.name)))),
    profile ? h("div", { class: "above" }, h("h2", {}, `Step ${profile.memory.step}: what is alive, over its time`), whoseBar(profile), h("div", { class: "cards" }, profile.memory.devices.map((device) => overTime(device, charts))))
      : h("p", { class: "lead" }, "Memory over the time of a step is known of a run that was recorded: tandem train CONFIG --profile."));
  for (const one of charts) await one.draw();
  return () => charts.forEach((one) => one.destroy());
}

function overTime(device, charts) {
  const unit = bytes(device.peak_live_bytes).split(" ")[1], per = 1024 ** ["B", "KiB", "MiB", "GiB", "TiB"].indexOf(unit);
  const steps = device.live_bytes_over_ms.flatMap(([t, n], i, all) => (i ? [[t, all[i - 1][1]], [t, n]] : [[t, n]])).map(([t, n], i) => [t + i * 1e-9, n / per, n / per, n / per, n / per]);
  const one = chart({ title: `${device.device}: ${unit} alive against ms, peak ${bytes(device.peak_live_bytes)}`, height: 190, load: async () => [{ name: device.device, colour: deviceColour(device.device), unit: (n) => `${number(n, 3)} ${unit}`, points: steps }] });
  charts.push(one);
  one.card.append(h("h3", {}, "At the peak"), table([{ name: "name", value: (t) => t.name }, { name: "class", value: (t) => t.class }, { name: "bytes", number: true, value: (t) => t.bytes, show: (t) => bytes(t.bytes) }],
    device.tenants, { label: `At the peak of ${device.device}`, sort: 2, most: 10 }));
  return one.card;
}

function card(device, seen) {
  const parts = [["parameters", device.parameter_bytes], ["state", device.state_bytes], ["activations, gradients, scratch", device.activation_bytes]];
  const rest = device.peak_bytes - parts.reduce((sum, [, n]) => sum + n, 0);
  if (rest > 0) parts.push(["staging and books", rest]);
  const limit = device.capacity_bytes || device.peak_bytes || 1;
  return h("section", { class: "card" }, h("div", { class: "card-head" }, h("h2", {}, device.name), h("span", { class: "tag" }, device.backend)),
    h("div", { class: "bars" }, h("div", { class: "track", style: { height: "26px" }, role: "img", "aria-label": `${bytes(device.peak_bytes)} of ${bytes(limit)}` },
      parts.map(([name, n], i) => h("i", { title: `${name}: ${bytes(n)}`, style: { width: `${(100 * n) / limit}%`, background: colour(i) } })))),
    h("div", { class: "legend" }, parts.map(([name, n], i) => h("span", {}, h("i", { class: "swatch", style: { background: colour(i) } }), `${name} ${bytes(n)}`))),
    h("p", {}, `Planned ${bytes(device.peak_bytes)}`, device.capacity_bytes ? ` of ${bytes(device.capacity_bytes)} (${percent(device.peak_bytes / device.capacity_bytes)})` : "",
      seen ? `; in use at most ${bytes(seen.peak_bytes)}.` : "; what was in use is known when the run has ended."),
    h("h3", {}, "Largest tenants"), table([{ name: "name", value: (t) => t.name }, { name: "bytes", number: true, value: (t) => t.bytes, show: (t) => bytes(t.bytes) }], device.tenants ?? [], { label: `Tenants of ${device.name}`, sort: 1 }));
}
