"""usage: plugin.py TANDEM SHARED_OBJECT
Trains a sample on the device of the sample plug-in, named in a configuration by its path: it must learn what the host learns,
hold no more than its memory, and be refused what does not fit."""
import sys

from runs import Runs, check

SETTINGS = ["model.hidden=[32, 16]", "data.most_rows=3000", "train.epochs=2"]
CPU_ONLY = ["devices=[cpu]", "placement={default: cpu}"]


def device(plugin, memory):
    return [f"devices=[cpu, {{name: mirror, backend: {plugin}, memory: {memory}}}]", "placement.default=mirror"]


def main():
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    with Runs(sys.argv[1], "wide_deep/wide_deep.yaml", SETTINGS) as runs:
        host = runs.train("host", CPU_ONLY)
        mirror = runs.train("mirror", device(sys.argv[2], "4MiB"))
        check(mirror["devices"][1]["backend"] == sys.argv[2] and mirror["devices"][1]["capacity_bytes"] == 4 << 20,
              f"the device is the plug-in's, with the memory it was given: {mirror['devices']}")
        check(mirror["plan"]["cut_edges"] > 0, "the run is cut")
        for name in ["auc", "logloss"]:
            a, b = host["metrics"][name], mirror["metrics"][name]
            check(abs(a - b) <= 1e-4, f"{name}: {a} on the host, {b} with the plug-in")
        refused = runs.call(runs.words("plan", device(sys.argv[2], "16KiB")), expect=3)
        check("does not fit: mirror has 16.0 KiB" in refused.stderr, refused.stderr)
    return 0


sys.exit(main())
