"""Recordings of jobs, their cases of tandem bench, and what steps allocate."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

from jobs import (
    NAME, TANDEM, SLOW, STEADY_RANKS, environment, MODEL, STEADY, words_of, mpirun, require, train, require_equal, profile_of,
    ranks_of, children, wait_for, Job)


def bench():
    """The cases of two ranks: one line from the worker, and a refusal that says how where there are not two."""
    for case in ("ps.pull", "ps.push"):
        words = [TANDEM, "bench", "--case", case, "--json", "--rows", "3000", "--batch", "1000", "--runs", "3", "--no-bound"]
        done = mpirun(2, words)
        require(done.returncode == 0, "the case does not run", done)
        line = json.loads(done.stdout)
        require(line["case"] == case and line["median_ms"] > 0 and line["rows_per_s"] > 0 and line["keys"] == 1000,
                "another line", done)
    alone = subprocess.run(words, capture_output=True, text=True, timeout=60)
    require(alone.returncode == 2 and "mpirun -n 2 tandem bench" in alone.stderr, "no word of how", alone)


def recorded():
    """Four ranks leave four traces, which make one: workers' pulls, pushes and sums, servers' answers and updates, on one clock. No bit
    of the result depends on it."""
    with tempfile.TemporaryDirectory(prefix="mpi_") as folder:
        pathlib.Path(folder, "model.yaml").write_text(MODEL)
        plain = train(folder, 4, "plain", "ps.servers=2")
        require_equal(train(folder, 4, "recorded", "ps.servers=2", more=["--profile"]), plain, "recorded or not")
        files = sorted(path.name for path in pathlib.Path(folder, "recorded/profile").iterdir())
        if files != [*(f"trace-0001.rank{r}.tdt" for r in (1, 2, 3)), "trace-0001.tdt"]:
            sys.exit(f"{NAME}: not a trace of each rank: {files}")
        report = profile_of(folder, "recorded")
        ranks = ranks_of(report)
        roles = {0: "worker 0", 1: "worker 1", 2: "server 0", 3: "server 1"}
        for rank, role in roles.items():
            one = ranks[rank]
            kinds = ("pull", "push", "sum") if role[0] == "w" else ("answer", "apply")
            clock = one["aligned"] == "one clock" or (one["aligned"] == "at beginning and end" and one["clock_error_ns"] > 0)
            if one["role"] != role or one["steps"] < 9 or not clock or not all(one[f"{kind}_ms"] > 0 for kind in kinds):
                sys.exit(f"{NAME}: rank {rank} is not recorded as {role}: {one}")
        if not all(keys["ids"] >= keys["distinct"] > 0 and keys["hot"] for keys in ranks[1]["keys"]) or len(ranks[1]["keys"]) != 3:
            sys.exit(f"{NAME}: the ids of three tables are not counted: {ranks[1]['keys']}")
        if not all(sorted(one["order"]) == [0, 1] for one in report["ranks"]["sums"]):
            sys.exit(f"{NAME}: who arrives at the sums is not told: {report['ranks']['sums']}")
        done = subprocess.run([TANDEM, "profile", "recorded", "--chrome", "c.json"], capture_output=True, text=True, cwd=folder)
        require(done.returncode == 0, "the job's timeline is not written", done)
        events = json.loads(pathlib.Path(folder, "c.json").read_text())["traceEvents"]
        if {event["pid"] for event in events if event["ph"] == "X"} != {1, 2, 3, 4}:
            sys.exit(f"{NAME}: the timeline does not have four processes")


def recorded_killed():
    """A rank that is killed while all record: the recording of the others can be read, and its own up to where it was written."""
    settings = ["train.epochs=100000", "profile.steps=3-", "ps.servers=2", "checkpoint.keep=0", "ps.recovery=off"]
    with tempfile.TemporaryDirectory(prefix="mpi_") as folder:
        pathlib.Path(folder, "model.yaml").write_text(MODEL)
        command = [TANDEM, "train", "model.yaml", "--run", "k", *[w for s in settings for w in ("--set", s)]]
        job = subprocess.Popen(words_of(4, command, ["--enable-recovery"]), env=environment(), cwd=folder,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True)
        def written():
            files = list(pathlib.Path(folder, "k/profile").glob("trace-0001*.tdt"))
            return len(files) == 4 and all(path.stat().st_size > 8000 for path in files)
        wait_for(written)
        os.kill(children(job.pid, "tandem")[1], signal.SIGKILL)
        job.wait(timeout=60)
        report = profile_of(folder, "k")
        ranks = ranks_of(report)
        if len(ranks) != 4 or not ranks[1]["cut"] or any(ranks[r]["cut"] or ranks[r]["steps"] < 2 for r in (0, 2, 3)) or ranks[1]["records"] < 100:
            sys.exit(f"{NAME}: the recording is not what was left of four ranks: {ranks}")


def check_both_workers(folder):
    ranks = [rank for rank in profile_of(folder, "job")["ranks"]["ranks"] if rank["rank"] == 0]
    if [(rank.get("worker"), rank["role"]) for rank in ranks] != [(0, "worker 0"), (1, "worker 1")]:
        sys.exit(f"{NAME}: not both workers of rank 0: {ranks}")
    steps, edges = [rank["steps"] for rank in ranks], 2  # recording begins and ends with a step of one of them
    if min(steps) < 10 or max(steps) - min(steps) > edges or not all(rank["sum_ms"] > 0 and rank["met"] >= min(steps) - edges for rank in ranks):
        sys.exit(f"{NAME}: the workers of rank 0 did not do the same: {[(r['steps'], r['met'], r['sum_ms']) for r in ranks]}")
    reports = [profile_of(folder, "job", "--worker", str(worker)) for worker in (0, 1)]
    if not all(len(one["steps"]) >= min(steps) - edges and one["average"]["all_reduce_ms"] > 0 for one in reports) or reports[0]["average"] == reports[1]["average"]:
        sys.exit(f"{NAME}: the workers of rank 0 are not analysed: {[one['average'] for one in reports]}")
    made = [(one["data"]["workers"], one["data"]["batches"], one["machine"]["cores_used"]) for one in reports]
    ahead = 16  # batches that stand ready, and steps at the edges
    if not all(threads == 1 and abs(batches - n) <= ahead and cores > 0 for (threads, batches, cores), n in zip(made, steps)):
        sys.exit(f"{NAME}: threads, batches and cores are not those of each worker of rank 0, of {steps} steps: {made}")


def recorded_both():
    """A worker is killed, and the other one's rank runs both: in the recording each has its own steps and sums."""
    with tempfile.TemporaryDirectory(prefix="mpi_") as folder:
        pathlib.Path(folder, "model.yaml").write_text(MODEL)
        job = Job(folder, 3, "job", "ps.servers=1", "profile.steps=3-", "train.epochs=10", "checkpoint.every=50")
        job.reach(50)
        job.send(1, signal.SIGKILL)
        job.need("going on after step ")
        job.end()
        check_both_workers(folder)


def recorded_recovered():
    """A server is killed while all record, and a spare takes its place: the job records on. The recording until then can be read, and
    so can the one that begins with a mark of the recovery, with the spare as a server, and without the rank that was lost."""
    with tempfile.TemporaryDirectory(prefix="mpi_") as folder:
        pathlib.Path(folder, "model.yaml").write_text(MODEL)
        job = Job(folder, 5, "job", "ps.servers=2", "ps.spares=1", "profile.steps=3-", *STEADY)
        job.reach(100)
        job.send(3, signal.SIGKILL)
        job.need("going on after step ")
        after = int(job.said[-1].split()[-1])
        job.end()
        files = sorted(path.name for path in pathlib.Path(folder, "job/profile").iterdir())
        wanted = sorted(f"trace-{number:04}{rank}.tdt" for number, lost in ((1, 4), (2, 3)) for rank in
                        ("", *(f".rank{r}" for r in (1, 2, 3, 4) if r != lost)))
        if files != wanted:
            sys.exit(f"{NAME}: not a recording before and one after: {files}")
        before, then = profile_of(folder, "job/profile/trace-0001.tdt"), profile_of(folder, "job")
        if "is lost" not in before["trace"]["info"]["ended_by"] or len(before["steps"]) < 20 or before["steps"][0]["step"] != 3:
            sys.exit(f"{NAME}: the recording before the loss does not end with it: {before['trace']['info']}")
        info, ranks = then["trace"]["info"], ranks_of(then)
        if info["recovery"]["lost"] != [3] or info["recovery"]["after_step"] != after or then["steps"][0]["step"] != after + 1:
            sys.exit(f"{NAME}: the recording after the loss does not say so: {info}")
        if "lost before" not in ranks[3]["problem"] or ranks[4]["role"] != "server 1" or not ranks[4]["apply_ms"] > 0:
            sys.exit(f"{NAME}: not the ranks that were left: {ranks}")
        subprocess.run([TANDEM, "profile", "job", "--chrome", "c.json"], check=True, cwd=folder, stdout=subprocess.DEVNULL)
        marks = [e for e in json.loads(pathlib.Path(folder, "c.json").read_text())["traceEvents"] if e["name"] == "recovery"]
        if len(marks) != 2 or {mark["args"]["step"] for mark in marks} != {after + 1}:
            sys.exit(f"{NAME}: no mark of the recovery on both workers: {marks}")


def slow_rank():
    """Rank 2 of four is slow: the recording names it, with its milliseconds within 5 %."""
    with tempfile.TemporaryDirectory(prefix="mpi_") as folder:
        done = mpirun(4, [SLOW, 2, folder])
        require(done.returncode == 0 and "rank 2 (" in done.stdout, "the slow rank is not found", done)


def steady():
    """Steps of a job allocate nothing once the first are done, and no rank takes more memory than the plan says, nor a checkpoint more than
    pieces."""
    for how in ("plain", "clip", "local", "dense", "shared"):
        with tempfile.TemporaryDirectory(prefix="mpi_") as folder:
            done = mpirun(2, [STEADY_RANKS, how, folder])
        require(done.returncode == 0, f"two ranks, {how}", done)
