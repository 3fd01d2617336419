"""Running `tandem` for tests and reading what it leaves. Standard library only."""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

SKIPPED = 77  # ctest's SKIP_RETURN_CODE
SOURCE = pathlib.Path(__file__).resolve().parents[2]


def shared_data(name):
    """A file that may not be copied into the project; None where it is not at hand (as in tests/data/files.h)."""
    folder = os.environ.get("TANDEM_TEST_DATA") or SOURCE / ".." / "shared" / "data"
    path = pathlib.Path(folder) / name
    return path.resolve() if path.is_file() else None


def check(holds, what):
    if not holds:
        raise AssertionError(what)


class Runs:
    """Runs of one configuration in a folder of their own. Every finished run is held to what must hold of all runs."""

    def __init__(self, tandem, configuration, settings):
        self.tandem = str(pathlib.Path(tandem).resolve())
        self.configuration = str(SOURCE / "samples" / configuration)
        self.settings = settings
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="samples_", dir=os.getcwd()))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder)

    def words(self, command, settings, *more):
        words = [self.tandem, command, self.configuration, *more]
        for setting in self.settings + settings:
            words += ["--set", setting]
        return words

    def call(self, words, isa=None, expect=0):
        environment = dict(os.environ, **({"TANDEM_ISA": isa} if isa else {}))
        done = subprocess.run(words, cwd=self.folder, env=environment, stdin=subprocess.DEVNULL, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        said = f"{' '.join(words)}\nended with {done.returncode}, not {expect}:\n{done.stdout}{done.stderr}"
        check(done.returncode == expect, said)
        return done

    def plan(self, settings=()):
        return json.loads(self.call(self.words("plan", list(settings), "--json")).stdout)

    def train(self, name, settings=(), isa=None, resume=False):
        more = ["--run", name] + (["--resume"] if resume else [])
        self.call(self.words("train", list(settings), *more), isa)
        summary = json.loads((self.folder / name / "summary.json").read_text())
        copies_follow_the_plan(name, summary)
        memory_follows_the_plan(name, summary)
        return summary

    def last_checkpoint(self, name):
        """The manifest of the newest checkpoint of a run."""
        newest = max((self.folder / name / "checkpoints").glob("step-*"))
        return json.loads((newest / "manifest.json").read_text())


def copies_follow_the_plan(name, summary):
    """Contract (c), at the extents that each step really had."""
    for direction in ["to_device", "to_host"]:
        copied = summary["copies"][f"{direction}_bytes_per_step"]
        planned = summary["copies"][f"planned_{direction}_bytes_per_step"]
        check(copied == planned, f"{name}: {copied} bytes a step copied {direction}, the plan says {planned}")


def memory_follows_the_plan(name, summary):
    """Contract (d)."""
    for device in summary["devices"]:
        peak, planned, capacity = (device[key] for key in ["peak_bytes", "planned_peak_bytes", "capacity_bytes"])
        where = f"{name}: {device['name']} held {peak} bytes"
        check(0 < peak <= planned, f"{where}, the plan says {planned}")
        check(not capacity or peak <= capacity, f"{where} of {capacity}")


def expect_same_parameters(runs):
    """`runs`: summaries by name. All must have ended with the same bits, after the same steps."""
    ends = {name: (s["parameters_checksum"], s["steps"], s["loss"], s["metrics"]) for name, s in runs.items()}
    first = next(iter(ends.values()))
    different = [f"  {name}: {end}" for name, end in ends.items()]
    check(all(end == first for end in ends.values()), "runs that must end alike do not:\n" + "\n".join(different))
