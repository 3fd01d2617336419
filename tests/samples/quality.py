"""usage: quality.py TANDEM SAMPLE
Trains a sample as its configuration says and holds what it reaches to the README's numbers. The bounds are those of the same
model in PyTorch over several seeds (samples/wide_deep/README.md, samples/dlrm/README.md, samples/lenet/README.md), for this configuration's seed."""
import sys

from runs import SKIPPED, Runs, check, shared_data

# Configuration, data that must be at hand, and the least and most that each metric may be.
SAMPLES = {
    "adult": ("wide_deep/wide_deep.yaml", None, {"auc": (0.9095, 0.9200), "logloss": (0.3100, 0.3210)}),
    "lenet": ("lenet/lenet.yaml", None, {"accuracy": (0.9580, 0.9800)}),
    "movielens": ("dlrm/movielens.yaml", "movielens-100k/ratings.tsv",
                  {"auc": (0.7016, 0.7100), "auc_seen_users": (0.750, 0.760), "logloss": (0.6150, 0.6300)}),
}


def main():
    if len(sys.argv) != 3 or sys.argv[2] not in SAMPLES:
        print(__doc__, "\nsamples:", *SAMPLES, file=sys.stderr)
        return 2
    configuration, data, bounds = SAMPLES[sys.argv[2]]
    settings = []
    if data:
        path = shared_data(data)
        if not path:
            print(f"skipped: {data} is not here; this data may not be copied into the project")
            return SKIPPED
        settings.append(f"data.train={path}")
    with Runs(sys.argv[1], configuration, settings) as runs:
        metrics = runs.train("quality")["metrics"]
    print(metrics)
    for name, (least, most) in bounds.items():
        check(least <= metrics[name] <= most, f"{name} is {metrics[name]}, expected {least} to {most}")
    return 0


sys.exit(main())
