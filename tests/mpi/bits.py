"""What a job learns: bit for bit what one process does, however many ranks there are and whatever they share."""
import json
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

from jobs import NAME, TANDEM, SAMPLES, ALONE, MODEL, LAYERS, mpirun, require, said, train, require_equal, profile_of, ranks_of, Job

# A model that squares a number as it is, and looks up a table.
SQUARES = """tdg 1
extent B<=24
input label f32 [B<=24, 1]
input numeric f32 [B<=24, 1]
input ids_t0 i64 [B<=24]
parameter table f32 [6, 4] uniform(-0.5, 0.5)
looked = embedding_bag(table, ids_t0, -) -> f32 [B<=24, 4]
squares = mul(numeric, numeric) -> f32 [B<=24, 1]
parameter a f32 [1, 1] constant(0.01)
parameter b f32 [1, 4] constant(0.1)
left = linear(squares, a, -) -> f32 [B<=24, 1]
right = linear(looked, b, -) -> f32 [B<=24, 1]
logit = add(left, right) -> f32 [B<=24, 1]
loss = bce_with_logits(logit, label) -> f32 [1]
"""

ROWS = """
graph:     squares.tdg
data:      {format: csv, train: rows.csv, numeric: [minutes], categorical: [city], label: bought, positive: "yes", transform: none, batch: 24}
devices:   [cpu]
offload:   {embedding: ps}
train:     {epochs: 2, on_nan: skip}
optimizer: [{match: "*", name: adagrad, lr: 0.01}]
"""


def bits_alone():
    """One worker computes what a process without mpirun does, whatever serves its tables."""
    with tempfile.TemporaryDirectory(prefix="mpi_") as folder:
        pathlib.Path(folder, "model.yaml").write_text(MODEL)
        alone = train(folder, ALONE, "alone", "offload.embedding=cpu")
        for ranks, servers in ((1, "colocated"), (3, 2)):
            require_equal(train(folder, ranks, f"s{servers}", f"ps.servers={servers}"), alone, f"{servers} servers")
        require_equal(train(folder, 1, "local", "offload.embedding=none"), alone, "no served table")


def bits_workers():
    """W workers compute what one process does that runs W replicas, for any number of servers, dedicated or colocated, and
    without a served table at all: short windows too, in which some workers have no batch."""
    with tempfile.TemporaryDirectory(prefix="mpi_") as folder:
        pathlib.Path(folder, "model.yaml").write_text(MODEL)
        for workers, servers, embedding in ((2, 2, "ps"), (3, "colocated", "ps"), (3, "colocated", "none"), (5, 3, "ps")):
            name = f"{workers}_{servers}_{embedding}"
            settings = [f"ps.servers={servers}", f"offload.embedding={embedding}"]
            ranks = workers if servers == "colocated" else workers + servers
            alone = train(folder, ALONE, f"alone_{name}", "offload.embedding=cpu", f"train.replicas={workers}")
            require_equal(train(folder, ranks, name, *settings), alone, name)


def bits_accumulate():
    """A window of W replicas times N micro-batches, N changing on the way: what one process does, whatever the number of ranks that
    run the replicas, with served tables and without; windows cut short by the end of the epoch, within a replica too; windows of many more batches than a rank has of them."""
    schedule = "train.accumulate_from=[{step: 4, accumulate: 2}, {step: 9, accumulate: 1}]"
    with tempfile.TemporaryDirectory(prefix="mpi_") as folder:
        pathlib.Path(folder, "model.yaml").write_text(MODEL)
        for replicas, ranks, servers, embedding in ((6, 5, 2, "ps"), (4, 2, "colocated", "ps"), (4, 2, "colocated", "none")):
            settings = [f"train.replicas={replicas}", "train.accumulate=3", schedule]
            name = f"{replicas}_{servers}_{embedding}"
            alone = train(folder, ALONE, f"alone_{name}", "offload.embedding=cpu", *settings)
            require_equal(train(folder, ranks, name, f"ps.servers={servers}", f"offload.embedding={embedding}", *settings), alone, name)


def bits_buckets():
    """Gradients that leave in several buckets while backward makes the next ones: of an accelerator beside served tables, of replicas
    that share a rank, with clipping. Sums that come late are the same on one rank and on two."""
    accel = ["devices=[cpu, {name: accel, backend: emulated, memory: 64MiB, cores: 1}]", "placement.default=accel"]
    shared = ["offload.embedding=none", "train.replicas=4", "train.accumulate=2", "train.clip_norm=0.5"]
    late = ["offload.embedding=none", "train.replicas=4", "ps.consistency={stale: 1}"]
    with tempfile.TemporaryDirectory(prefix="mpi_") as folder:
        pathlib.Path(folder, "model.yaml").write_text(MODEL)
        alone = train(folder, ALONE, "alone", *LAYERS, "offload.embedding=cpu", "train.replicas=2")
        require_equal(train(folder, 3, "accel", *LAYERS, "ps.servers=1", *accel, more=["--profile"]), alone, "an accelerator")
        ops = json.dumps(profile_of(folder, "accel")["operators"])
        if '"workers/send.2"' not in ops or '"workers/sum.2"' not in ops:
            sys.exit(f"{NAME}: there is one bucket: {ops}")
        alone = train(folder, ALONE, "alone4", *LAYERS, *shared)
        require_equal(train(folder, 2, "shared", *LAYERS, *shared), alone, "replicas that share a rank")
        require_equal(train(folder, 2, "late2", *LAYERS, *late), train(folder, 1, "late1", *LAYERS, *late), "sums that come late")


def bits_decided():
    """What is done with gradients depends on all of them: clipping by their norm, windows that overflow in fp16 and are forgotten by
    the servers, a window left out on all ranks because of one row of one worker. Each as in one process."""
    overflow = ["train.precision=fp16", "train.loss_scale.initial=8388608"]
    with tempfile.TemporaryDirectory(prefix="mpi_") as folder:
        pathlib.Path(folder, "model.yaml").write_text(MODEL)
        plain = train(folder, ALONE, "plain", "offload.embedding=cpu", "train.replicas=2")
        for name, settings in (("clip", ["train.clip_norm=0.05", "train.accumulate=2"]), ("fp16", overflow)):
            alone = train(folder, ALONE, name, "offload.embedding=cpu", "train.replicas=2", *settings)
            if alone["parameters_checksum"] == plain["parameters_checksum"] or (name == "fp16") != (alone["skipped_steps"] > 0):
                sys.exit(f"{NAME}: {name} shows nothing")
            require_equal(train(folder, 5, f"{name}_3", "train.replicas=2", "ps.servers=3", *settings), alone, f"{name}, 3 servers")
            require_equal(train(folder, 2, f"{name}_co", *settings), alone, f"{name}, colocated")
        rows = "".join(f"{3e38 if i == 40 else i % 7},c{i % 5},{'yes' if i % 2 else 'no'}\n" for i in range(200))
        pathlib.Path(folder, "rows.csv").write_text("minutes,city,bought\n" + rows)
        pathlib.Path(folder, "squares.tdg").write_text(SQUARES)
        pathlib.Path(folder, "model.yaml").write_text(ROWS)
        alone = train(folder, ALONE, "nan", "train.replicas=3", "offload.embedding=cpu")
        if alone["skipped_steps"] != 2:
            sys.exit(f"{NAME}: {alone['skipped_steps']} steps were skipped, not 2")
        require_equal(train(folder, 5, "nan_3", "ps.servers=2"), alone, "a step that is left out")


def dense_mpi():
    """Where MPI sums dense gradients up, with served tables and without, with a server apart, with replicas that share a rank and sums
    that come late, with workers that share optimizer state: what is learnt is the same but for rounding. A job that goes on after losses does not ask MPI for sums; one that
    does ends when a rank is lost, and names it."""
    shared = ["train.replicas=4", "train.accumulate=2", "ps.consistency={stale: 1}"]
    with tempfile.TemporaryDirectory(prefix="mpi_") as folder:
        pathlib.Path(folder, "model.yaml").write_text(MODEL)
        for ranks, settings in ((3, ["ps.servers=1", *LAYERS]), (2, ["offload.embedding=none", *shared]),
                                (2, ["ps.shard_optimizer=on", *LAYERS])):
            ordered = train(folder, ranks, f"o{ranks}{len(settings)}", *settings)
            by_mpi = train(folder, ranks, f"m{ranks}{len(settings)}", "ps.dense_sync=mpi", *settings)
            if by_mpi["steps"] != ordered["steps"] or abs(by_mpi["metrics"]["val_loss"] - ordered["metrics"]["val_loss"]) > 1e-4:
                sys.exit(f"{NAME}: {settings}: {by_mpi['metrics']} and {ordered['metrics']}")
        done = mpirun(2, [TANDEM, "train", "model.yaml", "--set", "ps.dense_sync=mpi", "--set", "ps.recovery=on"], cwd=folder)
        require("cannot sum by MPI" in said(done) and "ps.dense_sync: ordered" in said(done) and done.returncode == 2,
                "sums by MPI and recovery are not refused", done)
        job = Job(folder, 2, "lost", "ps.dense_sync=mpi", "ps.recovery=off", "train.epochs=100000", "checkpoint.every=50")
        job.reach(50)
        job.send(1, signal.SIGKILL)
        job.need("server 1 (rank 1 on ")
        job.process.communicate(timeout=60)


def stale():
    """Workers that may be ahead of each other never are by more than said, however they are scheduled, and every pull is counted; what
    needs all gradients of a window is refused. One worker has nobody to be ahead of: it is exact. Servers are recorded as in other
    jobs."""
    with tempfile.TemporaryDirectory(prefix="mpi_") as folder:
        pathlib.Path(folder, "model.yaml").write_text(MODEL)
        for name, consistency, most in (("two", "{stale: 2}", 2), ("one", "{stale: 1}", 1), ("async", "async", None)):
            summary = train(folder, 5, name, "ps.servers=2", f"ps.consistency={consistency}", "train.epochs=4",
                            more=["--profile"] if name == "two" else [])
            behind = summary["staleness"]
            if sum(behind) != 3 * 2 * summary["steps"] or most is not None and len(behind) > most + 1:
                sys.exit(f"{NAME}: {name}: pulls of {summary['steps']} steps were behind by {behind}")
            if not summary["metrics"]["auc"] > 0.6:
                sys.exit(f"{NAME}: {name} learns nothing: {summary['metrics']}")
        for rank, one in ranks_of(profile_of(folder, "two")).items():
            kinds = ("pull", "push", "sum") if rank < 3 else ("answer", "apply")
            if one["steps"] < 9 or not all(one[f"{kind}_ms"] > 0 for kind in kinds):
                sys.exit(f"{NAME}: rank {rank} is not recorded: {one}")
            if (sum(one["staleness"]) != 2 * one["steps"] or len(one["staleness"]) > 3) if rank < 3 else one["staleness"]:
                sys.exit(f"{NAME}: rank {rank} does not say how far behind its pulls were: {one}")
        exact = train(folder, 2, "exact", "ps.servers=1")
        require_equal(train(folder, 2, "alone", "ps.servers=1", "ps.consistency={stale: 3}"), exact, "one worker")
        for setting in ("train.clip_norm=1", "train.on_nan=skip", "train.precision=fp16"):
            done = mpirun(2, [TANDEM, "train", "model.yaml", "--set", "ps.consistency=async", "--set", setting], cwd=folder)
            require("they need ps.consistency: sync" in said(done) and done.returncode == 2, f"{setting} is not refused", done)


def resumed():
    """A checkpoint of one number of servers goes on with another, and one process reads it."""
    with tempfile.TemporaryDirectory(prefix="mpi_") as folder:
        pathlib.Path(folder, "model.yaml").write_text(MODEL)
        whole = train(folder, 4, "whole", "ps.servers=2")
        train(folder, 4, "part", "ps.servers=2", "train.steps=13")
        parted = train(folder, 3, "part", "ps.servers=1", more=["--resume"])
        require_equal(parted, whole, "a resumed run")
        done = subprocess.run([TANDEM, "eval", "model.yaml", "--checkpoint", "part", "--json"], capture_output=True, text=True, timeout=300, cwd=folder)
        require(done.returncode == 0, "one process does not read the checkpoint", done)
        metrics = json.loads(done.stdout)
        require(metrics.get("metrics", metrics)["auc"] == whole["metrics"]["auc"], "one process finds other metrics", done)


def samples():
    """Two ranks train each sample, without a served table, to the bits of one process."""
    short = ("train.steps=3", "checkpoint.keep=0", "offload.embedding=none")
    with tempfile.TemporaryDirectory(prefix="mpi_") as folder:
        shutil.copytree(SAMPLES, pathlib.Path(folder, "samples"))
        for sample in ("mlp/mlp", "lenet/lenet", "lenet/classic", "gpt/gpt", "wide_deep/wide_deep", "deepfm/deepfm"):
            source = pathlib.Path(folder, "samples", f"{sample}.yaml")
            shutil.copy(source, source.parent / "model.yaml")
            alone = train(source.parent, ALONE, f"{source.stem}_alone", "train.replicas=2", *short)
            require_equal(train(source.parent, 2, f"{source.stem}_two", *short), alone, sample)
