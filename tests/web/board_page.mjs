// usage: node board_page.mjs TANDEM [PICTURES]
// Drives every page of the board in a real Chromium: no error on the console, no request to another place, numbers on the page equal
// those in the files, axe-core finds nothing, and hostile names stay text. With a folder PICTURES it leaves screenshots there.
// It needs Chromium, and the npm packages playwright-core and axe-core in TANDEM_WEB_MODULES (a folder with node_modules) or beside
// it; without them it says so and is skipped.
import { execFileSync, spawn } from "node:child_process";
import fs from "node:fs";
import { createRequire } from "node:module";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";

const ROOT = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "../..");
const [tandem, pictures] = process.argv.slice(2);
const SETTINGS = ["train.steps=40", "summary.every=10", 'summary.parameters=["*"]', 'summary.tensors=["*bias", "fc3.weight"]', "summary.images=2", "log.level=warning"];
const PAGES = ["runs", "scalars", "compare", "parameters", "histograms", "tensors", "images", "lineage", "graph", "data", "memory", "steps", "operators", "timeline", "advice"];

function skip(reason) {
  console.log(`skipped: ${reason}`);
  process.exit(77);
}
function need(condition, text) {
  if (!condition) throw new Error(`failed: ${text}`);
}

function load(name) {
  const folders = [process.env.TANDEM_WEB_MODULES, ROOT].filter(Boolean);
  for (const folder of folders) {
    try { return createRequire(path.join(folder, "x.js"))(name); } catch { /* the next folder */ }
  }
  return skip(`the npm package ${name} is not installed (npm install playwright-core axe-core; TANDEM_WEB_MODULES=FOLDER)`);
}
const browserPath = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find((file) => fs.existsSync(file));
if (!browserPath) skip("there is no Chromium here (apt install chromium)");
const { chromium } = load("playwright-core");
const axe = load("axe-core").source;

function train(folder, name, more = []) {
  const settings = [...SETTINGS, ...more].flatMap((setting) => ["--set", setting]);
  execFileSync(tandem, ["train", path.join(ROOT, "samples/lenet/lenet.yaml"), "--run", path.join(folder, name), "--profile", ...settings], { stdio: ["ignore", "ignore", "inherit"] });
}

// Names that a page must show as text, and a file that was cut off.
function addHostile(folder) {
  const evil = path.join(folder, '"><img src=x onerror=alert(1)>');
  fs.mkdirSync(evil);
  fs.writeFileSync(path.join(evil, "run.json"), JSON.stringify({ started: "<script>alert(2)</script>", model: { name: "'; --\u0007" }, settings: { "a.b": "</script>" }, plan: {} }));
  const half = path.join(folder, "half");
  fs.mkdirSync(half);
  fs.writeFileSync(path.join(half, "run.json"), '{"started": "2026-');
  fs.writeFileSync(path.join(half, "events.out.tfevents.1"), Buffer.from([24, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3]));
}

function serve(folder) {
  const server = spawn(tandem, ["board", folder, "--port", "0"], { stdio: ["ignore", "pipe", "inherit"] });
  return new Promise((resolve, reject) => {
    let said = "";
    server.stdout.on("data", (data) => {
      said += data;
      const address = /http:\S+/.exec(said);
      if (address) resolve({ server, address: address[0] });
    });
    server.on("exit", () => reject(new Error(`tandem board ended: ${said}`)));
  });
}

async function settle(page, name) {
  await page.waitForFunction((wanted) => document.querySelector("nav a[aria-current]")?.getAttribute("href") === `#/${wanted}` &&
    document.getElementById("page").getAttribute("aria-busy") === "false", name);
}

async function open(page, address, name, query = "") {
  await page.goto("about:blank"); // a change behind # alone would not load the page anew
  await page.goto(`${address}#/${name}${query}`);
  await settle(page, name);
}

async function checkNumbers(page, address, folder) {
  const summary = JSON.parse(fs.readFileSync(path.join(folder, "one/summary.json")));
  const runs = (await (await page.request.get(`${address}api/v1/runs`)).json()).runs, one = runs.find((run) => run.name === "one");
  await open(page, address, "lineage", `?run=${one.id}`);
  const text = await page.textContent("#page");
  need(text.includes(String(Number(summary.loss.toPrecision(5)))), `the loss ${summary.loss} stands on the page`);
  need(text.includes(summary.parameters_checksum), "and the checksum");
  const scalars = await (await page.request.get(`${address}api/v1/scalars?run=one&tag=train/loss&pixels=8000`)).json();
  need(scalars.n === 40 && Math.abs(scalars.points[39][1] - summary.loss) <= 1e-6 * Math.abs(summary.loss), "the last loss of the curve is the summary's");
  await open(page, address, "tensors", `?run=${one.id}`);
  const tensor = await (await page.request.get(`${address}api/v1/tensors?run=one&tag=parameters/fc3.bias&step=1000`)).json();
  const card = page.locator("section.card", { hasText: "parameters/fc3.bias" });
  const cells = await card.locator("td").allTextContents();
  need(cells.some((cell) => cell !== "" && Number(cell) === Number(tensor.values[0].toPrecision(3))), `the tensor's first number ${tensor.values[0]} is in its table: ${cells}`);
  const profile = JSON.parse(execFileSync(tandem, ["profile", path.join(folder, "one"), "--json"]));
  const shown = await (await page.request.get(`${address}api/v1/profile?run=one`)).json();
  need(shown.average.interval_ms === profile.average.interval_ms && shown.steps.length === profile.steps.length, "the step trace is what tandem profile says");
  return one;
}

async function checkScalars(page, address) {
  await open(page, address, "scalars");
  const card = page.locator("section.card", { hasText: "train/loss" }).first();
  const over = card.locator(".u-over");
  const box = await over.boundingBox();
  await page.mouse.move(box.x + 60, box.y + 20);
  await page.mouse.down();
  await page.mouse.move(box.x + 180, box.y + 90, { steps: 5 });
  await page.mouse.up();
  const back = card.getByRole("button", { name: "back" });
  await page.waitForFunction((button) => !button.disabled, await back.elementHandle());
  await back.click();
  await page.waitForFunction((button) => button.disabled, await back.elementHandle());
  await card.getByRole("button", { name: "full" }).click();
  need(await card.evaluate((element) => element.classList.contains("full")), "a chart fills the screen");
  await page.keyboard.press("Escape");
  need(!(await card.evaluate((element) => element.classList.contains("full"))), "Escape ends that");
}

async function checkTimeline(page, address, one) {
  await open(page, address, "timeline", `?run=${one.id}`);
  const before = await page.evaluate(() => document.querySelector("canvas.surface").toDataURL());
  for (const key of ["w", "w", "d", "a", "s"]) await page.keyboard.press(key);
  await page.keyboard.press("w");
  await page.waitForFunction((was) => document.querySelector("canvas.surface").toDataURL() !== was, before);
}

async function checkLive(page, address, folder) {
  await open(page, address, "runs");
  await page.waitForFunction(() => document.getElementById("live").textContent === "live");
  fs.mkdirSync(path.join(folder, "late"));
  fs.writeFileSync(path.join(folder, "late/run.json"), '{"model": {"name": "late"}}');
  await page.waitForFunction(() => document.getElementById("page").textContent.includes("late"));
}

async function checkAccess(page, name, wrong) {
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => globalThis.axe.run(document));
  for (const v of violations) wrong.push(`axe on ${name}: ${v.id}: ${v.help} (${v.nodes.slice(0, 3).map((n) => n.target.join(" ")).join("; ")})`);
}

async function takePictures(browser, address, one) {
  fs.mkdirSync(pictures, { recursive: true });
  for (const theme of ["light", "dark"]) for (const width of [1280, 768, 390]) {
    const context = await browser.newContext({ viewport: { width, height: width > 1000 ? 800 : 900 }, colorScheme: theme });
    const page = await context.newPage();
    for (const name of PAGES) {
      await open(page, address, name, `?run=${one.id}`);
      await page.screenshot({ path: path.join(pictures, `${name}-${width}-${theme}.png`) });
    }
    await context.close();
  }
}

async function drive(browser, address, folder) {
  const page = await (await browser.newContext({ viewport: { width: 1280, height: 900 } })).newPage(), wrong = [];
  page.on("console", (message) => { if (message.type() === "error" && !/404|422/.test(message.text())) wrong.push(message.text()); });
  page.on("pageerror", (error) => wrong.push(String(error)));
  page.on("dialog", (dialog) => { wrong.push(`a dialog: ${dialog.message()}`); dialog.dismiss(); });
  page.on("request", (request) => { if (!request.url().startsWith(address) && !request.url().startsWith("data:")) wrong.push(`a request to ${request.url()}`); });
  const one = await checkNumbers(page, address, folder);
  for (const name of PAGES) {
    await open(page, address, name, `?run=${one.id}`);
    need((await page.locator("[role=alert]").count()) === 0, `${name} shows no error: ${await page.locator("[role=alert]").allTextContents()}`);
    need((await page.locator(".empty").count()) === 0, `${name} has something to show`);
    await checkAccess(page, name, wrong);
  }
  const runs = (await (await page.request.get(`${address}api/v1/runs`)).json()).runs;
  for (const run of runs.filter((r) => !["one", "two"].includes(r.name))) for (const name of PAGES.filter((one) => one !== "compare" && one !== "parameters")) await open(page, address, name, `?run=${run.id}`);
  await checkScalars(page, address);
  await checkTimeline(page, address, one);
  await checkLive(page, address, folder);
  need(!wrong.length, wrong.join("\n"));
  if (pictures) await takePictures(browser, address, one);
}

const folder = fs.mkdtempSync(path.join(os.tmpdir(), "tandem-board-")), profile = fs.mkdtempSync(path.join(os.tmpdir(), "tandem-chromium-"));
let server = null, browser = null;
try {
  train(folder, "one");
  train(folder, "two", ["train.seed=2", "optimizer[0].lr=0.02"]);
  if (!pictures) addHostile(folder);
  const served = await serve(folder);
  server = served.server;
  browser = await chromium.launch({ executablePath: browserPath, args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"] });
  await drive(browser, served.address, folder);
  console.log("every page of the board works");
} catch (error) {
  console.error(error.message);
  process.exitCode = 1;
} finally {
  await browser?.close();
  server?.removeAllListeners("exit");
  server?.kill();
  fs.rmSync(folder, { recursive: true, force: true });
  fs.rmSync(profile, { recursive: true, force: true });
}
