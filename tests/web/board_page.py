"""usage: board_page.py TANDEM [PICTURES]
Drives every page of the board in a real Chromium: nothing wrong on the console, no request to another place, numbers on the page equal
those in the files, hostile folders stay text, and axe-core (PyPI: axe-playwright-python) finds nothing. With a folder PICTURES it
leaves every page there, at three widths, in light and dark. Without Chromium it says so and is skipped; without axe-core all but that
is checked, and it says so too."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request

import board_checks as checks
import chromium
import packages
from board_checks import digits, need

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SETTINGS = ["train.steps=40", "summary.every=10", 'summary.parameters=["*"]', 'summary.tensors=["*bias", "fc3.weight"]', "summary.images=2", "log.level=warning",
            "landscape.unit=step", "landscape.intervals=[[0, 5, 10, 15, 20, 30, 40]]", "landscape.create_landscape.result=on"]
PAGES = ["runs", "scalars", "compare", "parameters", "histograms", "tensors", "images", "texts", "landscape", "lineage", "graph", "data", "memory", "steps", "operators", "timeline", "cluster", "advice"]
REFUSALS = ("status of 400", "status of 404", "status of 422")  # what the pages ask for and a run has not
OF_MANY = ["runs", "scalars", "compare", "parameters"]


def train(tandem, folder, name, more=()):
    words = [tandem, "train", "samples/lenet/lenet.yaml", "--run", folder / name, "--profile"]
    for setting in [*SETTINGS, *more]:
        words += ["--set", setting]
    subprocess.run(words, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    subprocess.run([tandem, "landscape", folder / name, "--size", "8", "--samples", "64"], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)


def train_job(tandem, folder):
    """Two workers and two servers; False where there is no mpirun."""
    folder.mkdir()
    if not shutil.which("mpirun"):
        return False
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"} if os.getuid() == 0 else {}
    with tempfile.TemporaryDirectory() as own:  # another mpirun may end where this one begins
        subprocess.run(["mpirun", "--oversubscribe", "--bind-to", "none", "-n", "4", tandem, "train", "samples/wide_deep/ps.yaml", "--profile", "--run", folder / "job", "--set", "train.steps=60",
                        "--set", "profile.steps=20-49"], check=True, cwd=ROOT, env={**os.environ, **root, "TMPDIR": own}, stdout=subprocess.DEVNULL)
    return True


def add_hostile(folder):
    """Names that a page must show as text, a file that was cut off, one that goes elsewhere, and more tags than a page can list."""
    evil = folder / '"><img src=x onerror=alert(1)>'
    evil.mkdir()
    (evil / "run.json").write_text(json.dumps({"started": "<script>alert(2)</script>", "model": {"name": "'; --\u0007\u2028"},
                                               "settings": {"a.b": "</script>", "__proto__": "x"}, "plan": {}, "metrics": "x"}))
    long = folder / ("long" * 60)
    long.mkdir()
    (long / "run.json").write_text(json.dumps({"model": {"name": "m" * 100000}, "data": {"stages": "x"}, "plan": {"devices": 7, "subgraphs": [{"ops": 3}]}}))
    half = folder / "half"
    half.mkdir()
    (half / "run.json").write_text('{"started": "2026-')
    (half / "events.out.tfevents.1").write_bytes(bytes([24, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3]))
    (folder / "away").symlink_to("/etc")


class Served:
    def __init__(self, tandem, folder, *more):
        self.process = subprocess.Popen([tandem, "board", folder, "--port", "0", *more], stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        need("http:" in line, f"tandem board says {line!r}")
        self.address = re.search(r"http:\S+", line)[0]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def get(self, name, **parameters):
        with urllib.request.urlopen(f"{self.address}api/v1/{name}?{urllib.parse.urlencode(parameters)}") as answer:
            return json.load(answer)


def open_page(page, served, name, query=""):
    page.open(f"{served.address}#/{name}{query}")
    page.wait("document.querySelector('nav a[aria-current]')?.getAttribute('href') === '#/%s' && document.getElementById('page').getAttribute('aria-busy') === 'false'" % name, name)


def text_of(page):
    return page.value("document.getElementById('page').textContent")


def as_ms(t):
    """As the page writes a time."""
    short = lambda x: float(f"{x:.3g}")
    unit, per = ("ms", 1) if t == 0 else next(((u, p) for u, p in (("ns", 1e6), ("µs", 1e3), ("ms", 1)) if short(t * p) < 1000), ("s", 1e-3))
    return f"{t * per:.3g} s" if unit == "s" else f"{short(t * per):.10g} {unit}"


def check_numbers(page, served, folder, one, tandem):
    summary = json.loads((folder / "one/summary.json").read_text())
    open_page(page, served, "lineage", f"?run={one}")
    text = text_of(page)
    need(f"{digits(summary['loss'], 5):g}" in text, f"the loss {summary['loss']} stands on the page")
    need(summary["parameters_checksum"] in text, "and the checksum")
    scalars = served.get("scalars", run="one", tag="train/loss", pixels=8000)
    need(scalars["n"] == 40 and abs(scalars["points"][39][1] - summary["loss"]) <= 1e-6 * abs(summary["loss"]), "the last loss of the curve is the summary's")
    open_page(page, served, "runs")
    row = page.value("[...document.querySelectorAll('tbody tr')].find((r) => r.querySelector('a').textContent === 'one').textContent")
    need(f"{digits(summary['loss'], 4):g}" in row, f"the loss is in the list: {row}")
    open_page(page, served, "tensors", f"?run={one}")
    tensor = served.get("tensors", run="one", tag="parameters/fc3.bias", step=1000)
    cells = page.value("[...[...document.querySelectorAll('section.card')].find((c) => c.textContent.includes('parameters/fc3.bias')).querySelectorAll('td')].map((c) => c.textContent).filter(Boolean)")
    need([float(c) for c in cells] == [digits(v, 3) for v in tensor["values"]], f"{tensor['values']} are the numbers of the table {cells}")
    profile = json.loads(subprocess.run([tandem, "profile", folder / "one", "--json"], check=True, capture_output=True).stdout)
    shown = served.get("profile", run="one")
    need(shown["average"]["interval_ms"] == profile["average"]["interval_ms"] and len(shown["steps"]) == len(profile["steps"]), "the step trace is what tandem profile says")


def check_landscape(page, served, folder, one):
    """The path's losses are the file's; a surface can be turned; the ticked runs come beside it."""
    drawn = json.loads((folder / "one/landscape/landscape.json").read_text())
    path = drawn["landscapes"][0]["path"]
    open_page(page, served, "landscape", f"?run={one}")
    text = text_of(page)
    for point in (path[0], path[-1]):
        need(f"{digits(point['loss'], 4):g}" in text, f"the loss {point['loss']} of step {point['step']} is on the page: {text}")
    need(page.value("document.querySelectorAll('section.card canvas').length") == 2, "a picture for each landscape")
    page.value("(() => { const s = document.querySelector('#page select'); s.value = 'surface'; s.dispatchEvent(new Event('change')); })()")
    before = page.value("document.querySelector('section.card canvas').toDataURL()")
    page.value("document.querySelector('section.card canvas').focus()")
    page.key("ArrowLeft")
    page.wait(f"document.querySelector('section.card canvas').toDataURL() !== {json.dumps(before)}", "the surface turns")
    page.value("document.querySelector('#page .bar input[type=checkbox]:last-of-type') && [...document.querySelectorAll('#page .bar label')].find((l) => l.textContent.includes('ticked')).querySelector('input').click()")
    need(page.value("document.querySelectorAll('section.card canvas').length") == 4, "the ticked run's pictures beside it")


def check_tensor_slices(page, served, one):
    """Any slice, and the step that a slider chooses."""
    open_page(page, served, "tensors", f"?run={one}")
    card = "[...document.querySelectorAll('section.card')].find((c) => c.textContent.includes('parameters/fc3.weight'))"
    first = page.value(f"{card}.textContent")
    page.value(f"(() => {{ const i = {card}.querySelector('input[type=text]'); i.value = ':, 2:5'; i.dispatchEvent(new Event('change')); }})()")
    page.wait(f"{card}.querySelectorAll('thead th').length === 3", "a slice of three columns")
    tensor = served.get("tensors", run="one", tag="parameters/fc3.weight", step=10, slice=":,2:5")
    page.value(f"(() => {{ const i = {card}.querySelector('input[type=range]'); i.value = '0'; i.dispatchEvent(new Event('input')); }})()")
    page.wait(f"{card}.textContent.includes('step 10')", "the slider's step")
    cells = page.value(f"[...{card}.querySelectorAll('td')].map((c) => c.textContent).filter(Boolean)")
    need([float(c) for c in cells] == [digits(v, 3) for v in tensor["values"]] and cells, f"the slice's numbers are in the table, not {cells}")
    page.value(f"(() => {{ const i = {card}.querySelector('input[type=text]'); i.value = '99'; i.dispatchEvent(new Event('change')); }})()")
    page.wait(f"{card}.querySelector('.bad')?.textContent.includes('within it')", "what is wrong with a slice is said")
    need(first, "the card had something before")


def check_scalars(page, served):
    open_page(page, served, "scalars")
    card = "[...document.querySelectorAll('section.card')].find((c) => c.textContent.includes('train/loss'))"
    button = f"[...{card}.querySelectorAll('button')].find((b) => b.textContent === '%s')"
    page.wait(f"{card}.querySelector('.u-over')")
    x, y = page.value(f"(() => {{ const b = {card}.querySelector('.u-over').getBoundingClientRect(); return [b.left, b.top]; }})()")
    page.drag((x + 60, y + 20), (x + 180, y + 90))
    page.wait(f"!{button % 'back'}.disabled", "a box zooms")
    page.value(f"{button % 'back'}.click()")
    page.wait(f"{button % 'back'}.disabled", "back takes it back")
    page.value(f"{button % 'full'}.focus(), {button % 'full'}.click()")
    page.wait(f"{card}.classList.contains('full')", "a chart fills the screen")
    page.key("Escape")
    page.wait(f"!{card}.classList.contains('full')", "Escape ends that")


def check_steps(page, served, run):
    """Curves over steps, any step in detail, and its micro-steps: the numbers of the interface, which are tandem profile's."""
    name = next(r["name"] for r in served.get("runs")["runs"] if r["id"] == run)
    curves, profile = served.get("curves", run=name), served.get("profile", run=name)
    open_page(page, served, "steps", f"?run={run}")
    card = "[...document.querySelectorAll('section.card')].find((c) => c.textContent.includes('Over steps'))"
    last = f"interval: {as_ms(curves['step']['interval_ms'][-1])} at {curves['steps'][-1]}"
    page.wait(f"{card}.textContent.includes({json.dumps(last)})", last)
    groups = page.value(f"[...{card}.querySelectorAll('option')].map((o) => o.textContent)")
    together = any(ms > 0 for o in curves["overlaps"] for ms in o["ms"])  # on a busy machine nothing may have been
    need(groups == ["what steps did", "critical path, by cause", "subgraphs and copies", "lanes at work", *["at work at the same time"] * together], f"curves of every kind: {groups}")
    page.value(f"(() => {{ const s = {card}.querySelector('select'); s.value = '3'; s.dispatchEvent(new Event('change')); }})()")
    page.wait(f"{card}.textContent.includes({json.dumps(curves['lanes'][0]['name'] + ': ' + as_ms(curves['lanes'][0]['busy_ms'][-1]))})", "a lane's curve")
    before = page.value(f"{card}.querySelector('.legend').children.length")
    page.value(f"{card}.querySelector('.marks button').click()")
    page.wait(f"{card}.querySelector('.legend').children.length === {before - 1}", "a curve can be left out")

    step = served.get("step", run=name, step=curves["steps"][1])
    page.value(checks.press("next"))
    page.wait(f"document.getElementById('page').textContent.includes('Step {curves['steps'][0]}') && document.querySelector('svg.wide-picture')", "the first step")
    page.value("document.querySelector('svg [role=button]:nth-of-type(2)').dispatchEvent(new MouseEvent('click'))")
    page.wait(f"[...document.querySelectorAll('h2')].some((t) => t.textContent === 'Step {curves['steps'][1]}')", "a press on a bar chooses a step")
    shown = page.value("[...document.querySelectorAll('#page .figure')].map((f) => f.textContent)")
    need(as_ms(step["step"]["interval_ms"]) + "interval" in shown and as_ms(step["step"]["backward_ms"]) + "backward" in shown, f"the step's figures: {shown}")
    rows = page.value("[...document.querySelectorAll('[aria-label=\"Micro-steps\"] tbody tr')].map((r) => r.textContent)")
    need(len(rows) == 2 and all(as_ms(m["forward_ms"]) in row for m, row in zip(step["step"]["micro_steps"], rows)), f"the micro-steps' rows: {rows}")
    pairs = page.value("[...document.querySelectorAll('[aria-label=\"At the same time\"] tbody tr')].map((r) => r.textContent)")
    need(sorted(pairs) == sorted(o["a"] + o["b"] + as_ms(o["ms"]) for o in step["overlaps"] if o["ms"] > 0), f"pairs at work together: {pairs}")
    page.value(checks.press("average"))
    page.wait("[...document.querySelectorAll('h2')].some((t) => t.textContent === 'Average step')", "back to the average")
    need(as_ms(profile["average"]["interval_ms"]) in page.value("document.querySelector('#page .figure').textContent"), "the average interval")


def check_job(browser, served, axe):
    """Every page of a job of four ranks: who they are, and the steps of the worker that is chosen, on every page of their times."""
    page, job = browser.page(1280, 900), served.get("run", run="job")["id"]
    page.home, page.expected = served.address, REFUSALS
    for name in PAGES:
        open_page(page, served, name, f"?run={job}")
        if axe and name in ("steps", "cluster"):
            check_access(page, f"{name} of a job", axe)
    cluster, of = served.get("cluster", run="job"), [served.get("profile", run="job", rank=rank) for rank in (0, 1)]
    open_page(page, served, "cluster", f"?run={job}")
    text = text_of(page)
    need(all(f"rank {rank['rank']}, {rank['role']}" in text for rank in cluster["ranks"]) and len(cluster["ranks"]) == 4, f"four ranks: {text[:300]}")
    need(as_ms(cluster["ranks"][1]["pull_ms"]) in text, "what a worker's pulls take")
    open_page(page, served, "steps", f"?run={job}")
    choice = "[...document.querySelectorAll('#page label')].find((l) => l.textContent.startsWith('steps of')).querySelector('select')"
    need(page.value(f"[...{choice}.options].map((o) => o.textContent)") == ["rank 0, worker 0", "rank 1, worker 1"], "those that trained can be chosen")
    interval = "[...document.querySelectorAll('#page .figure')].find((f) => f.textContent.endsWith('interval')).textContent"
    need(page.value(interval) == as_ms(of[0]["average"]["interval_ms"]) + "interval", "the first worker's steps")
    page.value(f"(() => {{ const s = {choice}; s.value = '1'; s.dispatchEvent(new Event('change')); }})()")
    page.wait("location.hash.includes('rank=1') && document.getElementById('page').getAttribute('aria-busy') === 'false'", "rank 1 is chosen")
    page.wait(f"{interval} === {json.dumps(as_ms(of[1]['average']['interval_ms']) + 'interval')}", "its average step")
    page.value(checks.press("next"))
    step = served.get("step", run="job", rank=1, step=of[1]["steps"][0]["step"])
    page.wait(f"{interval} === {json.dumps(as_ms(step['step']['interval_ms']) + 'interval')}", "one of its steps")
    page.value("[...document.querySelectorAll('nav a')].find((a) => a.textContent === 'Operators').click()")
    page.wait(f"document.querySelector('h1').textContent === 'Operators' && {choice}.value === '1' && document.getElementById('page').textContent.includes({json.dumps(as_ms(sum(op['self_ms'] for op in of[1]['operators']['by_op'])))})", "its ops, on the next page")
    return page.wrong


def check_live(page, served, folder):
    open_page(page, served, "runs")
    page.wait("document.getElementById('live').textContent === 'live'")
    (folder / "late").mkdir()
    (folder / "late/run.json").write_text('{"model": {"name": "late"}}')
    page.wait("document.getElementById('page').textContent.includes('late')", "a new run comes by itself")


def check_access(page, name, axe, rules=None):
    page.value(axe)
    options = {"runOnly": rules} if rules else {}
    for violation in page.value(f"axe.run(document, {json.dumps(options)})" ".then((r) => r.violations.map((v) => ({id: v.id, help: v.help, nodes: v.nodes.slice(0, 3).map((n) => n.target.join(' '))})))"):
        page.wrong.append(f"axe-core on {name}: {violation['id']}: {violation['help']} ({'; '.join(violation['nodes'])})")


def check_narrow(browser, served, one, axe):
    """In the dark, too."""
    page = browser.page(390, 844, dark=True)
    page.home, page.expected = served.address, REFUSALS
    for name in PAGES:
        open_page(page, served, name, f"?run={one}")
        wide = page.value("document.documentElement.scrollWidth")
        need(wide <= 390, f"{name} is {wide} pixels wide on a screen of 390")
        if axe:
            check_access(page, f"{name}, narrow and dark", axe, ["color-contrast", "scrollable-region-focusable"])
    page.value("document.getElementById('menu-button').click()")
    page.wait("document.getElementById('menu').getBoundingClientRect().left === 0 && getComputedStyle(document.getElementById('menu')).display === 'block'", "the menu opens")
    page.key("Escape")
    page.wait("getComputedStyle(document.getElementById('menu')).display === 'none'", "Escape closes the menu")
    return page.wrong


def check_features(page, served, folder, one, two):
    def open_one(name, query=""):
        open_page(page, served, name, query)
    checks.check_runs(page, open_one, served)
    checks.check_parameters(page, open_one, one, two)
    checks.check_compare(page, open_one, folder, one, two)
    checks.check_smoothing(page, open_one, served, one)
    checks.check_values(page, open_one, served, one)
    checks.check_model(page, open_one, folder, one)
    checks.check_profile(page, open_one, served, one)
    checks.check_theme(page, open_one)
    checks.check_empty(page, open_one, next(r["id"] for r in served.get("runs")["runs"] if r["name"] == "late"), [p for p in PAGES if p not in OF_MANY and p not in ("lineage",)])
    checks.check_live_curve(page, open_one, folder, served)


def drive(browser, served, folder, tandem, axe):
    page = browser.page(1280, 900)
    page.home, page.expected = served.address, REFUSALS
    runs = served.get("runs")["runs"]
    one = next(run["id"] for run in runs if run["name"] == "one")
    check_numbers(page, served, folder, one, tandem)
    for name in PAGES:
        open_page(page, served, name, f"?run={one}")
        need(not page.value("document.querySelectorAll('[role=alert]').length"), f"{name} shows no error: {text_of(page)[:300]}")
        alone = name == "cluster"  # one process: the page says how a job is recorded
        need((page.value("document.querySelectorAll('.empty').length") > 0) == alone, f"{name} has something to show")
        if axe:
            check_access(page, name, axe)
    for run in runs:
        for name in PAGES if run["name"] not in ("one", "two") else ():
            if name not in OF_MANY:
                open_page(page, served, name, f"?run={run['id']}")
    check_tensor_slices(page, served, one)
    check_landscape(page, served, folder, one)
    check_scalars(page, served)
    two = next(run["id"] for run in runs if run["name"] == "two")
    check_steps(page, served, two)
    check_live(page, served, folder)
    check_features(page, served, folder, one, two)
    wrong = page.wrong + check_narrow(browser, served, one, axe)
    need(not wrong, "\n".join(wrong))
    return one


def train_for_pictures(tandem, folder):
    """Six runs that differ, long enough for curves."""
    more = ["train.steps=240", "summary.every=30", "landscape.intervals=[[0, 20, 40, 60, 80, 120, 160, 200, 240]]"]
    for i, (rate, seed) in enumerate([(0.05, 1), (0.02, 1), (0.1, 1), (0.05, 2), (0.02, 2), (0.1, 2)]):
        train(tandem, folder, f"lenet-{i + 1}", [*more, f"train.seed={seed}", f"optimizer[0].lr={rate}"])


def make_smaller(folder):
    """A palette of 200 colours is enough for these, and a third of the bytes."""
    code = ("import pathlib, sys; from PIL import Image\n"
            "for p in pathlib.Path(sys.argv[1]).glob('*.png'): Image.open(p).convert('RGB').quantize(200, dither=0).save(p, optimize=True)")
    subprocess.run([packages.folder() / "bin" / "python", "-c", code, folder], check=True)


def take_pictures(browser, served, run, pages, folder):
    folder.mkdir(parents=True, exist_ok=True)
    for dark in (False, True):
        for width, height in ((1280, 800), (768, 900), (390, 844)):
            page = browser.page(width, height, dark)
            for name in pages:
                open_page(page, served, name, f"?run={served.get('run', run=run)['id']}")
                page.picture(folder / f"{name}-{width}-{'dark' if dark else 'light'}.png")
            page.close()


def axe_core():
    """The script, or None where it cannot be had."""
    try:
        return next(packages.folder().glob("lib/python*/site-packages/axe_playwright_python/axe.min.js")).read_text()
    except SystemExit:
        return None


def main():
    if len(sys.argv) not in (2, 3):
        print(__doc__, file=sys.stderr)
        return 2
    if not chromium.find():
        packages.skip("there is no Chromium here (Debian: apt install chromium; Ubuntu's is a snap, which does not run here)")
    tandem, pictures = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2]) if len(sys.argv) == 3 else None
    axe = axe_core()
    with tempfile.TemporaryDirectory(prefix="tandem-board-") as folder:
        job, folder = pathlib.Path(folder) / "job", pathlib.Path(folder) / "alone"
        several = train_job(tandem, job)
        folder.mkdir()
        if pictures:
            train_for_pictures(tandem, folder)
        else:
            train(tandem, folder, "one")
            train(tandem, folder, "two", ["train.seed=2", "optimizer[0].lr=0.02", "train.accumulate=2"])
            add_hostile(folder)
        with Served(tandem, folder) as served, Served(tandem, job) as of_job, chromium.Browser() as browser:
            if not browser.starts():
                packages.skip("Chromium does not start here")
            if pictures:
                take_pictures(browser, served, "lenet-3", [p for p in PAGES if p != "cluster"], pictures)
                take_pictures(browser, of_job, "job", ["cluster"] if several else [], pictures)
                make_smaller(pictures)
            else:
                drive(browser, served, folder, tandem, axe)
                wrong = check_job(browser, of_job, axe) if several else []
                need(not wrong, "\n".join(wrong))
    print("every page of the board works" + ("" if axe else "; axe-core is not here: not asked") + ("" if several else "; mpirun is not here: no job was shown"))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except chromium.Failed as failure:
        sys.exit(f"failed: {failure}")
