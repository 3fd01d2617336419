"""usage: tensorboard_reads.py TANDEM
TensorBoard's own reader (PyPI package tensorboard) opens what a training leaves: every tag, the last loss of summary.json, the graph
with each node's device, histograms whose counts add up; and has nothing to warn of. Skipped, with the reason, where the package
cannot be had (packages.py)."""
import json
import logging
import math
import pathlib
import subprocess
import sys
import tempfile
import warnings

import packages

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CONFIGURATION = ROOT / "samples" / "lenet" / "lenet.yaml"
SETTINGS = ["train.steps=12", "summary.every=6", 'summary.parameters=["*"]', 'summary.tensors=["*bias"]', "summary.images=2",
            "train.clip_norm=1", 'summary.gradients=["fc*"]', 'summary.activations=["*/relu"]', "log.level=warning"]


class Warnings(logging.Handler):
    """What the reader has to say against a file."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


def check(condition, text):
    if not condition:
        sys.exit(f"failed: {text}")


def check_run(run, accumulator):
    from tensorboard.util import tensor_util
    summary = json.loads((run / "summary.json").read_text())
    plan = json.loads((run / "run.json").read_text())["plan"]
    events = accumulator.EventAccumulator(str(run), size_guidance={kind: 0 for kind in accumulator.DEFAULT_SIZE_GUIDANCE})
    events.Reload()
    tags = events.Tags()

    losses = events.Scalars("train/loss") if "train/loss" in tags["scalars"] else None
    numbers = [s.value for s in losses] if losses else \
        [float(tensor_util.make_ndarray(t.tensor_proto)) for t in events.Tensors("train/loss")]
    check(len(numbers) == 12, f"12 losses, not {len(numbers)}")
    check(math.isclose(numbers[-1], summary["loss"], rel_tol=1e-6), f"{numbers[-1]} is the loss of summary.json, {summary['loss']}")
    every = set(tags["scalars"]) | set(tags["tensors"])
    for tag in ["train/gradient_norm", "time/step_ms", "time/samples_per_s", "time/data_wait_ms", "test/accuracy"]:
        check(tag in every, f"{tag} is there: {sorted(every)}")
    check(len(tags["images"]) == 2 and len(events.Images(tags["images"][0])) == 2, f"two images twice: {tags['images']}")
    png = events.Images(tags["images"][0])[0].encoded_image_string
    check(png.startswith(b"\x89PNG"), "an image is a PNG file")
    histogram = events.Histograms(tags["histograms"][0])[1].histogram_value
    check(sum(histogram.bucket) == histogram.num > 0, "a histogram's counts add up")
    for tag in ["gradients/fc1.weight", "activations/conv1/relu"]:
        check(tag in tags["histograms"], f"{tag} is there: {tags['histograms']}")
    text = tensor_util.make_ndarray(events.Tensors("configuration")[0].tensor_proto)[0].decode()
    check("model:" in text, "the configuration is there as text")

    devices = {op["name"]: op["device"] for subgraph in plan["subgraphs"] for op in subgraph["ops"]}
    nodes = {node.name: node for node in events.Graph().node}
    check(set(devices) <= set(nodes), "every op is a node")
    for name, device in devices.items():
        check(nodes[name].device == device, f"{name} is on {device}, not {nodes[name].device}")
    for node in nodes.values():
        for source in node.input:
            check(source in nodes, f"{node.name} reads {source}, which is no node")


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    packages.use()
    from tensorboard.backend.event_processing import event_accumulator
    heard = Warnings()
    for logger in [None, "tensorboard", "absl"]:
        logging.getLogger(logger).addHandler(heard)
    with tempfile.TemporaryDirectory() as folder:
        run = pathlib.Path(folder) / "run"
        words = [sys.argv[1], "train", str(CONFIGURATION), "--run", str(run)]
        for setting in SETTINGS:
            words += ["--set", setting]
        subprocess.run(words, check=True)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            check_run(run, event_accumulator)
        ours = [str(w.message) for w in warned if "event" in w.filename and not issubclass(w.category, (DeprecationWarning, FutureWarning))]
        check(not heard.lines and not ours, f"no warning: {heard.lines + ours}")
    print("TensorBoard reads it, without a warning")
    return 0


sys.exit(main())
