"""What the peers' scripts share: their options, ids and numbers, timing, and the one line of JSON that each prints.

    script.py --case NAME --peer NAME [--batch N] [--rows N] [--threads N] [--runs N] ...

Exit code 77, with the reason on standard error: the peer is not installed here."""
import argparse
import importlib
import json
import os
import statistics
import sys
import time

ABSENT = 77


def options(peers):
    """The command line, and what it asks for. `peers`: the cases of each peer that the script has."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", required=True)
    parser.add_argument("--peer", required=True, choices=sorted(peers))
    for size in ("batch", "rows", "tables", "dim", "bag", "threads", "runs"):
        parser.add_argument("--" + size, type=int)
    parser.add_argument("--alpha", type=float)
    asked = parser.parse_args()
    if asked.case not in peers[asked.peer]:
        parser.error(f"{asked.peer} has no case {asked.case}: {', '.join(peers[asked.peer])}")
    return asked


def need(module):
    """The module, or the end of the script."""
    try:
        return importlib.import_module(module)
    except Exception as error:  # some packages fail to load for reasons of their own
        lines = str(error).splitlines() or [type(error).__name__]
        print(f"{module} is not usable here: {lines[0]}", file=sys.stderr)
        sys.exit(ABSENT)


def cores():
    return len(os.sched_getaffinity(0))


def torch_of(asked):
    torch = need("torch")
    torch.set_num_threads(asked.threads or cores())
    return torch


def zipf(rng, rows, count, alpha=1.15):
    """Ids by the inverse of the continuous bounded power law, scattered over the table."""
    import numpy as np
    u = rng.random(count)
    if abs(alpha - 1.0) < 1e-9:
        x = np.exp(u * np.log(rows))
    else:
        x = (1 + u * (rows ** (1 - alpha) - 1)) ** (1 / (1 - alpha))
    return np.minimum(x.astype(np.int64) - 1, rows - 1).clip(0) * 2654435761 % rows


class InTurn:
    """One of several batches after the other."""

    def __init__(self, items):
        self.items, self.at = items, 0

    def __call__(self):
        self.at = (self.at + 1) % len(self.items)
        return self.items[self.at]


def measure(step, warmup=3, runs=15, budget_s=20.0):
    for _ in range(warmup):
        step()
    times, begin = [], time.perf_counter()
    while len(times) < runs and (len(times) < 5 or time.perf_counter() - begin < budget_s):
        t = time.perf_counter()
        step()
        times.append(time.perf_counter() - t)
    return times


def report(asked, times, samples=0, ops=0, **more):
    quarters = statistics.quantiles(times, n=4) if len(times) > 3 else [min(times)] * 3
    median = statistics.median(times)
    line = {"case": asked.case, "peer": asked.peer, "median_ms": round(median * 1e3, 4),
            "q1_ms": round(quarters[0] * 1e3, 4), "q3_ms": round(quarters[2] * 1e3, 4), "runs": len(times)}
    line.update(more)
    if samples:
        line["samples_per_s"] = round(samples / median)
    if ops:
        line["us_per_op"] = round(median / ops * 1e6, 4)
    print(json.dumps(line), flush=True)
