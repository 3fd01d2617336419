"""What each page of the board must do, feature by feature: numbers on the page are those of the interface and of the files. For
board_page.py, which says what `page` and `served` are; `one` and `two` are ids of runs."""
import json
import shutil

from chromium import Failed


def need(condition, text):
    if not condition:
        raise Failed(text)


def digits(number, precision):
    """As the page writes it."""
    return float(f"{number:.{precision}g}")


def spaced(number):
    """A whole number as the page writes it."""
    return f"{number:,}".replace(",", "\u202f")


def texts(page, selector):
    return page.value(f"[...document.querySelectorAll({json.dumps(selector)})].map((e) => e.textContent)")


def change(page, element, value, event="change"):
    page.value(f"(() => {{ const e = {element}; e.value = {json.dumps(value)}; e.dispatchEvent(new Event('{event}', {{ bubbles: true }})); }})()")


def press(label, within="#page"):
    return f"[...document.querySelectorAll('{within} button')].find((b) => b.textContent === '{label}').click()"


def card(text):
    return f"[...document.querySelectorAll('#page .card')].find((c) => c.textContent.includes({json.dumps(text)}))"


def check_runs(page, open_page, served):
    """Search by name and by setting, columns that sort, ticks."""
    open_page("runs")
    search = "document.querySelector('#page input[type=search]')"
    change(page, search, "two", "input")
    need(texts(page, "tbody a") == ["two"], "a search by name")
    change(page, search, "optimizer[0].lr=0.02 lenet", "input")
    need(texts(page, "tbody a") == ["two"], "a search by a setting")
    change(page, search, "", "input")
    losses = {run["name"]: run["loss"] for run in served.get("runs")["runs"] if run.get("loss") is not None}
    for down in (True, False):
        page.value("[...document.querySelectorAll('thead button')].find((b) => b.textContent === 'loss').click()")
        names = [name for name in texts(page, "tbody a") if name in losses]
        need(names == sorted(losses, key=losses.get, reverse=down), f"sorted by loss, {'down' if down else 'up'}: {names}")
    need(page.value("document.querySelector('th[aria-sort=ascending]').textContent") == "loss", "the column says that it is sorted by")
    page.value(press("tick none"))
    page.wait("document.querySelector('#page [role=status]')?.textContent.includes(', 0 ticked')", "no run is ticked")


def check_parameters(page, open_page, one, two):
    """Parallel coordinates with a brush, scatter, distribution, importance."""
    open_page("parameters", f"?runs={one},{two}")
    need(page.value("document.querySelectorAll('circle').length") == 2, "a dot for each run that has ended")
    page.value("document.querySelector('[data-axis=\"optimizer[0].lr\"]').focus()")
    page.key("ArrowUp")
    page.wait("document.querySelector('#page h2').textContent === 'Settings and result: 1 of 3 runs'", "a brush by keys keeps one run, and none that has not the setting")
    page.value(press("tick the runs that pass"))
    page.wait("location.hash.includes('runs=') && !location.hash.includes('%2C') && document.getElementById('page').getAttribute('aria-busy') === 'false'", "only that run is ticked")
    page.wait(f"{card('Distribution of loss')}", "a distribution")
    counts = page.value(f"[...{card('Distribution of loss')}.querySelectorAll('.value')].map((v) => Number(v.textContent))")
    need(sum(counts) == 2, f"the distribution counts each run: {counts}")
    need("optimizer[0].lr" in page.value(f"{card('What goes with loss')}.textContent"), "importance of the setting that differs")


def check_compare(page, open_page, folder, one, two):
    open_page("compare", f"?runs={one},{two}")
    text = page.value("document.getElementById('page').textContent")
    for name in ("one", "two"):
        summary = json.loads((folder / name / "summary.json").read_text())
        need(f"{digits(summary['loss'], 4):g}" in text and summary["parameters_checksum"] in text, f"the results of {name} are compared")
    for key in ("optimizer[0].lr", "train.accumulate", "train.seed"):
        need(key in page.value(f"{card('Settings that differ')}.textContent"), f"{key} differs")
    need("train.clip_norm" not in page.value("[...document.querySelectorAll('h2')].find((t) => t.textContent === 'Settings that differ').parentElement.textContent"), "what does not differ is left out")


def check_smoothing(page, open_page, served, one):
    """Over every value; none shows the value itself; the log axis and keys."""
    open_page("scalars", f"?runs={one}")
    loss = "[...document.querySelectorAll('section.card')].find((c) => c.textContent.includes('train/loss'))"
    for weight in ("0.9", "0"):
        change(page, "document.getElementById('smoothing')", weight, "input")
        last = served.get("scalars", run="one", tag="train/loss", smoothing=weight)["points"][-1]
        page.wait(f"{loss}.querySelector('.legend').textContent.includes('one: {digits(last[4], 5):g} at 40')", f"smoothed by {weight}: {last[4]}")
    need(last[4] == last[1], "no smoothing is the value")
    shape = f"{loss}.querySelector('canvas').toDataURL()"
    before = page.value(shape)
    page.value("[...document.querySelectorAll('#page .bar label')].find((l) => l.textContent === 'log axis').querySelector('input').click()")
    page.wait(f"{shape} !== {json.dumps(before)}", "a logarithmic axis")
    page.value(f"{loss}.querySelector('[role=img]').focus()")
    page.key("+")
    page.wait(f"![...{loss}.querySelectorAll('button')].find((b) => b.textContent === 'back').disabled", "a key zooms")
    page.key("Backspace")
    page.wait(f"[...{loss}.querySelectorAll('button')].find((b) => b.textContent === 'back').disabled", "a key steps back")


def check_values(page, open_page, served, one):
    """Histograms, images, texts."""
    open_page("histograms", f"?run={one}")
    last = served.get("histograms", run="one", tag="parameters/fc3.bias")["histograms"][-1]
    said = f"step {last['step']}: {last['n']} numbers, mean {digits(last['mean'], 4):g}"
    need(said in page.value(f"{card('parameters/fc3.bias')}.textContent"), said)
    before = page.value(f"{card('parameters/fc3.bias')}.querySelector('canvas').toDataURL()")
    change(page, "document.querySelector('#page .bar select')", "heat map")
    page.wait(f"{card('parameters/fc3.bias')}.querySelector('canvas').toDataURL() !== {json.dumps(before)}", "a heat map")

    open_page("images", f"?run={one}")
    page.wait("document.querySelector('#page img').naturalWidth === 28", "an image of 28 x 28")
    change(page, "document.querySelector('#page input[type=range]')", "0", "input")
    page.wait("document.querySelector('#page img').alt.endsWith('step 10') && document.querySelector('#page img').complete", "the slider's step")
    open_page("texts", f"?run={one}")
    text = served.get("texts", run="one", tag="configuration")["texts"][0]["text"]
    need(page.value("document.querySelector('pre.text').textContent").strip() == text.strip().removeprefix("```yaml\n").removesuffix("```").strip(), "the configuration as it was recorded")


def check_model(page, open_page, folder, one):
    """The graph with its groups, devices and cut edges; the data's stages; memory."""
    lineage = json.loads((folder / "one/run.json").read_text())
    plan, ops = lineage["plan"], [op for s in lineage["plan"]["subgraphs"] for op in s["ops"]]
    open_page("graph", f"?run={one}")
    need(page.value("document.querySelectorAll('[data-node]').length") == len(plan["subgraphs"]), "a box for each subgraph")
    page.value(press("open all"))
    page.wait(f"document.querySelectorAll('[data-node]').length === {len(ops)}", "a box for each op")
    need(len(texts(page, "[aria-label='Cut edges'] tbody tr")) == len(plan["cut_edges"]), "every cut edge")
    need(set(texts(page, "#page .bar .legend span")) == {device["name"] for device in plan["devices"]}, "every device")
    change(page, "document.querySelector('#page input[type=search]')", ops[-1]["name"])
    page.wait(f"document.querySelector('aside').textContent.includes({json.dumps(ops[-1]['name'])}) && document.querySelector('aside dl').textContent.includes({json.dumps(ops[-1]['device'])})", "a search tells of the op")
    view = "document.querySelector('svg.surface').getAttribute('viewBox')"
    before = page.value(f"document.querySelector('svg.surface').focus(), {view}")
    page.key("+")
    page.wait(f"{view} !== {json.dumps(before)}", "the graph zooms")
    open_page("data", f"?run={one}")
    need(texts(page, ".pipeline li b") == [*[stage["name"] for stage in lineage["data"]["stages"]], "session"], "the stages of the data")
    open_page("memory", f"?run={one}")
    rows = texts(page, "[aria-label='Tenants of accel'] tbody td:first-child")
    need(rows == [t["name"] for t in next(d for d in plan["devices"] if d["name"] == "accel")["tenants"]], f"the largest tenants: {rows}")


def check_profile(page, open_page, served, one):
    """Operators in a chart, ranked and searched; advice; the timeline's events."""
    profile = served.get("profile", run="one")
    open_page("operators", f"?run={one}")
    ops = sorted(profile["operators"]["by_op"], key=lambda op: -op["total_ms"])
    need(texts(page, "[aria-label=Ops] tbody td:first-child")[0] == ops[0]["name"], "the op that takes longest comes first")
    change(page, "document.querySelector('#page select')", "by_device")
    need(set(texts(page, ".bars .name")) == {d["name"] for d in profile["operators"]["by_device"]}, "time by device")
    change(page, "document.querySelector('#page input[type=search]')", "conv2d_weight", "input")
    named = texts(page, "[aria-label=Ops] tbody td:first-child")
    need(named and set(named) == {op["name"] for op in ops if "conv2d_weight" in op["name"] + op["op"]}, f"a search for ops: {named}")
    page.value("document.querySelector('[aria-label=Ops] tbody tr').focus()")
    page.key("Enter")
    page.wait(f"document.querySelector('#page [aria-live]').textContent.startsWith({json.dumps(named[0])})", "Enter tells of an op")
    open_page("advice", f"?run={one}")
    text = page.value("document.getElementById('page').textContent")
    need(all(advice["text"] in text and f"rule {advice['rule']}: measured" in text for advice in profile["advice"]), "all that tandem profile advises")
    open_page("timeline", f"?run={one}")
    need(f"{spaced(served.get('timeline', run='one')['events'])} events" in page.value("document.getElementById('page').textContent"), "how many events there are")
    view = "document.querySelector('canvas.surface').toDataURL()"
    whole = page.value(view)
    for key in "wsda":
        before = page.value(view)
        page.key(key)
        page.wait(f"{view} !== {json.dumps(before)}", f"the timeline moves by {key}")
    page.key("0")
    page.wait(f"{view} === {json.dumps(whole)}", "0 shows all again")


def check_theme(page, open_page):
    back = "getComputedStyle(document.body).backgroundColor"
    open_page("runs")
    light = page.value(back)
    page.key("t")
    page.wait(f"{back} !== {json.dumps(light)}", "T makes it dark")
    open_page("runs")
    need(page.value(back) != light, "and it stays so")
    page.key("t")


def check_live_curve(page, open_page, folder, served):
    """A run that is written while it is looked at: its curve comes, and grows, by itself."""
    source, run = next((folder / "one").glob("events.out.tfevents.*")), folder / "late"
    data, ends = source.read_bytes(), [0]
    while ends[-1] < len(data):  # each record: its length, a checksum, its bytes, a checksum
        ends.append(ends[-1] + 16 + int.from_bytes(data[ends[-1]:ends[-1] + 8], "little"))
    cut = ends[len(ends) // 2] + 7  # within one
    late = next(r["id"] for r in served.get("runs")["runs"] if r["name"] == "late")
    open_page("scalars", f"?runs={late}")
    need(page.value("document.querySelector('#page .empty strong').textContent") == "No scalar here", "there is no curve yet")
    (run / source.name).write_bytes(data[:cut])
    page.wait("document.querySelector('section.card[data-ready]')", "the beginning of a curve")
    points = served.get("scalars", run="one", tag="train/loss", smoothing=0)["points"]
    need(f"{digits(points[-1][1], 5):g} at 40" not in page.value("document.getElementById('page').textContent"), "it is not at its end yet")
    change(page, "document.getElementById('smoothing')", "0", "input")
    with open(run / source.name, "ab") as file:
        file.write(data[cut:])
    page.wait(f"document.getElementById('page').textContent.includes('late: {digits(points[-1][1], 5):g} at 40')", "the rest of the curve comes by itself")
    shutil.rmtree(run)


def check_empty(page, open_page, run, pages):
    """A run of which nothing was recorded: every page says what is missing, and how it is recorded."""
    for name in pages:
        open_page(name, f"?runs=&run={run}")
        need(page.value("Boolean(document.querySelector('#page .empty strong')?.textContent)"), f"{name} says that there is nothing")
        said = page.value("document.querySelector('#page .empty').textContent")
        need(any(word in said for word in ("tandem train", "summary", "mpirun")), f"{name} says how it is recorded: {said}")
