#!/usr/bin/env python3
"""bench/compare, with a program and peers that are made here: who runs when, ratios, absent peers, what fails and how.

usage: compare.py TANDEM"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TANDEM = sys.argv.pop(1)

# A program and a peer that note that they ran, with what, and print times that are known: 2 ms, and 6 ms for torch.
PROGRAM = """#!/usr/bin/env python3
import json, sys
open({log!r}, "a").write("tandem " + " ".join(sys.argv[1:]) + "\\n")
if "--list" in sys.argv:
    print(json.dumps([{{"case": name}} for name in ("embedding.forward", "dlrm.kaggle", "dlrm.large", "alone")]))
elif "--losses" in sys.argv:
    open(sys.argv[sys.argv.index("--export") + 1], "w").write("of another length")
    print(json.dumps({{"case": sys.argv[3], "losses": [0.5] * 20}}))
elif "nonsense" in sys.argv:
    print("tandem: bench: unknown case", file=sys.stderr)
    print("  see: tandem bench --list", file=sys.stderr)
    sys.exit(2)
else:
    print(json.dumps({{"case": sys.argv[3], "peer": "tandem", "median_ms": 2.0, "bound_ms": 1.0}}))
"""
PEER = """import json, os, sys
peer = sys.argv[sys.argv.index("--peer") + 1]
assert "OPENBLAS_CORETYPE" not in os.environ
open({log!r}, "a").write(peer + " " + " ".join(sys.argv[1:]) + "\\n")
if peer == "fbgemm":
    print("fbgemm_gpu is not usable here: No module named 'fbgemm_gpu'", file=sys.stderr)
    sys.exit(77)
print("a line that is no result")
print(json.dumps({{"case": "x", "peer": peer, "median_ms": 6.0}}))
"""


class Compare(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.at = pathlib.Path(self.folder.name)
        self.log = self.at / "log"
        self.program = self.at / "tandem"
        self.program.write_text(PROGRAM.format(log=str(self.log)))
        self.program.chmod(0o755)
        for script in ("dlrm.py", "embedding.py"):
            (self.at / script).write_text(PEER.format(log=str(self.log)))

    def tearDown(self):
        self.folder.cleanup()

    def compare(self, *words, tandem=None):
        return subprocess.run(
            [sys.executable, "-B", str(ROOT / "bench/compare"), *words, "--tandem", tandem or str(self.program), "--peers", str(self.at)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={"PATH": "/usr/bin:/bin", "OPENBLAS_CORETYPE": "x"})

    def ran(self):
        return [line.split()[0] for line in self.log.read_text().splitlines() if "--list" not in line]

    def test_pairs_are_interleaved_and_turn_round(self):
        done = self.compare("dlrm.kaggle", "--pairs", "2", "--peer", "torch")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.ran(), ["tandem", "torch", "torch", "tandem"])
        self.assertIn("ratio 3.00 (3.00 to 3.00); each 3.00 3.00", done.stdout)
        self.assertIn("the machine's limit 1.00 ms: 2.00 times that", done.stdout)

    def test_an_absent_peer_is_left_out_with_its_reason(self):
        result = self.at / "result.json"
        done = self.compare("dlrm.kaggle", "--pairs", "3", "--json", str(result))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.ran().count("fbgemm"), 1)
        self.assertIn("left out: fbgemm_gpu is not usable here: No module named 'fbgemm_gpu'", done.stdout)
        case, = json.loads(result.read_text())
        self.assertEqual(case["ratios"], {"torch": [3.0, 3.0, 3.0]})
        self.assertEqual(list(case["absent"]), ["fbgemm"])
        self.assertEqual(len(case["lines"]["tandem"]), 3)

    def test_a_pattern_stands_for_its_cases_and_sizes_reach_both_sides(self):
        done = self.compare("dlrm.*", "--pairs", "1", "--peer", "torch", "--batch", "128")
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = [line for line in self.log.read_text().splitlines() if "--list" not in line]
        self.assertEqual(len(lines), 4)
        self.assertTrue(all(line.endswith("--batch 128") for line in lines), lines)
        self.assertIn("dlrm.large", done.stdout)

    def test_a_case_without_peers_is_measured_alone(self):
        done = self.compare("alone", "--pairs", "1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("no peer has this case", done.stdout)

    def test_a_peer_may_have_an_interpreter_of_its_own(self):
        other = self.at / "python"
        other.write_text(f"#!/bin/sh\necho other >> {self.log}\nexec {sys.executable} \"$@\"\n")
        other.chmod(0o755)
        done = self.compare("dlrm.kaggle", "--pairs", "1", "--python", f"torch={other}")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.ran(), ["tandem", "other", "torch", "fbgemm"])

    def test_what_fails_is_said_in_one_line(self):
        done = self.compare("nonsense")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertEqual(done.stderr.count("\n"), 1)
        self.assertIn("ended with 2: tandem: bench: unknown case", done.stderr)
        done = self.compare("dlrm.kaggle", tandem=str(self.at / "nowhere"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("cannot run", done.stderr)
        (self.at / "dlrm.py").write_text("print('nothing to read')")
        done = self.compare("dlrm.kaggle", "--pairs", "1")
        self.assertEqual(done.returncode, 1)
        self.assertIn("printed no line of JSON", done.stderr)

    def test_losses_are_held_to_their_tolerance(self):
        script = "import json, sys; assert open(sys.argv[sys.argv.index('--file') + 1]).read()\nprint(json.dumps({'losses': [0.5] * 19 + [%s]}))"
        for last, code in (("0.50004", 0), ("0.5001", 1), ("float('nan')", 1)):
            (self.at / "losses.py").write_text(script % last)
            done = self.compare("dlrm.kaggle", "--check-losses")
            self.assertEqual(done.returncode, code, done.stdout + done.stderr)
            self.assertIn("OTHER LOSSES" if code else "the same losses", done.stdout)
        (self.at / "losses.py").write_text("print('{}')")
        self.assertIn("losses", self.compare("dlrm.kaggle", "--check-losses").stderr)
        (self.at / "losses.py").write_text("import sys; sys.exit(77)")
        done = self.compare("dlrm.kaggle", "--check-losses")
        self.assertEqual((done.returncode, done.stdout), (0, "dlrm.kaggle: not compared: not installed\n"))

    def test_the_program_itself_is_understood(self):
        result = self.at / "result.json"
        done = self.compare("dispatch.chain250", "--pairs", "1", "--peer", "none", "--runs", "3", "--json", str(result),
                            tandem=TANDEM)
        self.assertEqual(done.returncode, 0, done.stderr)
        line, = json.loads(result.read_text())[0]["lines"]["tandem"]
        self.assertEqual(line["runs"], 3)


unittest.main()
