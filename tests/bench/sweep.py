#!/usr/bin/env python3
"""bench/sweep with a program that is made here: which sizes it asks for, the table, the plot, and where it sees a cliff.

usage: sweep.py TANDEM"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.argv.pop(1)  # the program itself is not needed: its lines are tested where it prints them

# 100 ns per id; bags of more than 20 cost three times that.
PROGRAM = """#!/usr/bin/env python3
import json, sys
given = dict(zip(sys.argv[2:], sys.argv[3:]))
line = {"case": given["--case"], "alpha": float(given["--alpha"])}
for size in ("tables", "rows", "dim", "batch", "bag"):
    line[size] = int(given["--" + size])
assert line["tables"] * line["rows"] * line["dim"] * 4 <= 9e9
line["median_ms"] = line["tables"] * line["batch"] * line["bag"] * 1e-4 * (3 if line["bag"] > 20 else 1)
print(json.dumps(line))
"""


class Sweep(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.at = pathlib.Path(self.folder.name)
        self.program = self.at / "tandem"
        self.program.write_text(PROGRAM)
        self.program.chmod(0o755)

    def tearDown(self):
        self.folder.cleanup()

    def sweep(self, *words):
        return subprocess.run([sys.executable, "-B", str(ROOT / "bench/sweep"), "--tandem", str(self.program), "--out", str(self.at), *words],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def test_a_cliff_is_named_and_a_level_cost_is_not(self):
        done = self.sweep("--axis", "bag", "--axis", "rows", "--every", "2", "--case", "embedding.forward")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("| 20 | 32.8 (100) | 32.8 (100) |", done.stdout)
        self.assertIn("- forward, Zipf: bag 20 to 100: 3.00 times per id", done.stdout)
        self.assertNotIn("rows 1", done.stdout)
        lines = json.loads((self.at / "sweep.json").read_text())
        self.assertEqual([line["bag"] for line in lines if line["axis"] == "bag" and not line["alpha"]], [1, 5, 20, 100])
        self.assertEqual(max(line["rows"] for line in lines), 10**8)

    def test_the_plot_has_a_panel_for_each_axis_and_can_be_drawn_again(self):
        self.assertEqual(self.sweep("--axis", "dim", "--axis", "bag", "--every", "3").returncode, 0)
        svg = xml.etree.ElementTree.parse(self.at / "sweep.svg").getroot()
        space = "{http://www.w3.org/2000/svg}"
        self.assertEqual(len(svg.findall(space + "polyline")), 8)  # two cases, two kinds of ids, two axes
        first = (self.at / "sweep.svg").read_text()
        done = self.sweep("--from", str(self.at / "sweep.json"))
        self.assertEqual((done.returncode, (self.at / "sweep.svg").read_text()), (0, first))

    def test_a_failing_program_is_named(self):
        self.program.write_text("#!/bin/sh\necho 'tandem: does not fit' >&2\nexit 3\n")
        done = self.sweep("--axis", "bag")
        self.assertEqual(done.returncode, 1)
        self.assertIn("ended with 3: tandem: does not fit", done.stderr)


unittest.main()
