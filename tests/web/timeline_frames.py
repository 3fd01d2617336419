"""usage: timeline_frames.py TANDEM MAKE_TRACE [EVENTS...]
Measures, and asserts nothing: for traces of so many events (1000000 10000000) how long the board takes to answer the first look at all
of it, and how long frames take in Chromium while that view is panned and zoomed: from one frame to the next, and the drawing alone."""
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import chromium
from board_page import Served, open_page

PAN = """new Promise((done) => {
  const times = [];
  let left = 60, before = performance.now();
  const step = (now) => {
    times.push(now - before);
    before = now;
    if (!left--) { done(times.slice(1)); return; }
    dispatchEvent(new KeyboardEvent("keydown", { key: "%s"[left %% %d] }));
    requestAnimationFrame(step);
  };
  requestAnimationFrame(step);
})"""


def show(name, times):
    times = sorted(times)
    print(f"  {name}: median {statistics.median(times):.1f} ms, 95 of 100 within {times[int(0.95 * len(times))]:.1f}, at most {times[-1]:.1f}")


def main():
    tandem, make_trace, *sizes = sys.argv[1:]
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        for size in map(int, sizes or ["1000000", "10000000"]):
            run = pathlib.Path(folder) / str(size)
            (run / "profile").mkdir(parents=True)
            subprocess.run([make_trace, run / "profile" / "trace-0001.tdt", str(size)], check=True)
        with Served(tandem, folder) as served, chromium.Browser() as browser:
            for run in sorted(served.get("runs")["runs"], key=lambda r: int(r["name"])):
                begun = time.monotonic()
                answer = served.get("timeline", run=run["id"])
                print(f"{answer['events']} events: opened in {time.monotonic() - begun:.2f} s")
                page = browser.page(1280, 800)
                open_page(page, served, "timeline", f"?run={run['id']}")
                page.call("Page.bringToFront")
                for name, keys in (("panning", "da"), ("zooming", "wwss")):
                    show(name, page.value(PAN % (keys, len(keys))))
                show("drawing", [float(t) for t in page.value("document.querySelector('#page > div').dataset.frames").split()])
                page.close()


main()
