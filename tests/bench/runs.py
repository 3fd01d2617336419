#!/usr/bin/env python3
"""tools/compare-runs: units as the program has them, and why a run on an emulated device is the slower one."""
import json
import pathlib
import subprocess
import sys
import tempfile

COMPARE = pathlib.Path(__file__).resolve().parents[2] / "tools" / "compare-runs"
REASON = "accel is emulated: some of this machine's own cores do its work"


def summary(median_ms, backend, capacity):
    return {"steps": 391, "seed": 1, "loss": 0.5, "step_ms": {"median": median_ms}, "samples_per_s": 19317,
            "copies": {"to_device_bytes_per_step": 3520000, "to_host_bytes_per_step": 999}, "plan": {"subgraphs": 7, "cut_edges": 55},
            "devices": [{"name": "accel", "backend": backend, "capacity_bytes": capacity, "peak_bytes": 60922000}],
            "parameters_checksum": 7}


def compare(first, second):
    with tempfile.TemporaryDirectory() as folder:
        runs = [pathlib.Path(folder, name) for name in ("cut", "single")]
        for run, content in zip(runs, (first, second)):
            run.mkdir()
            (run / "summary.json").write_text(json.dumps(content))
        return subprocess.run([COMPARE, *runs], check=True, capture_output=True, text=True).stdout


def require(condition, what, text):
    if not condition:
        sys.exit(f"{what}:\n{text}")


def main():
    cut, single = summary(105, "emulated", 256 << 20), summary(62.5, "cpu", 0)
    text = compare(cut, single)
    require("3.52 MB" in text and "999 B" in text, "bytes that are copied are no plain units", text)
    require("58.1 MiB of 256 MiB" in text, "memory that is held is not in powers of 1024", text)
    require(REASON in text, "nothing says why the cut run is slower", text)
    two = {**cut, "devices": [*cut["devices"], {**cut["devices"][0], "name": "other"}]}
    require("accel and other are emulated: some of this machine's own cores do their work" in compare(two, single), "two devices are one", text)
    require(REASON not in compare(single, cut), "the faster run has a reason to be slow", text)
    require(REASON not in compare(summary(60, "emulated", 256 << 20), single), "a faster cut run has a reason to be slow", text)
    require(REASON not in compare(summary(105, "opencl", 256 << 20), single), "a real device is called emulated", text)


main()
