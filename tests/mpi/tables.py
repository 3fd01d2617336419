"""Tables of jobs: hash tables, rows that workers keep, and tables larger than a rank."""
import json
import pathlib
import subprocess
import sys
import tempfile

from jobs import NAME, TANDEM, ALONE, MODEL, mpirun, require, train, summary_of, require_equal, profile_of, ranks_of

HASH = "\ntables: {hash: [{match: \"*\"}]}\n"


def hash_bits():
    """A hash table without rules is, bit for bit, an array: in one process, and for any number of workers and servers; so with
    rows of 16 bits, and with ids beyond 2^32."""
    with tempfile.TemporaryDirectory(prefix="mpi_") as folder:
        pathlib.Path(folder, "model.yaml").write_text(MODEL)
        arrays = {w: train(folder, ALONE, f"array{w}", "offload.embedding=cpu", f"train.replicas={w}") for w in (1, 2, 3)}
        wide = ["data.table_rows=[8589934592, 50, 7]", "train.table_dtype=bf16", "data.skew=0.2"]
        sparse = train(folder, ALONE, "sparse", "offload.embedding=cpu", "train.replicas=2", "tables.storage=sparse", *wide)
        pathlib.Path(folder, "model.yaml").write_text(MODEL + HASH)
        require_equal(train(folder, ALONE, "alone", "offload.embedding=cpu"), arrays[1], "alone")
        windows = ["train.accumulate=3", "train.clip_norm=0.05"]
        require_equal(train(folder, ALONE, "windows", "offload.embedding=cpu", "train.replicas=2", *windows),
                      train(folder, 2, "windows_2", *windows), "one process and two workers, over windows of 2 x 3 batches")
        require_equal(train(folder, 4, "2_2", "ps.servers=2", more=["--profile"]), arrays[2], "2 workers, 2 servers")
        counted = ranks_of(profile_of(folder, "2_2"))[0]["keys"]
        if len(counted) != 3 or not all(0 <= hot["id"] < 2000 for keys in counted for hot in keys["hot"]):
            sys.exit(f"{NAME}: other ids than those of the data come most: {counted}")
        require_equal(train(folder, 3, "3", "offload.embedding=none"), arrays[3], "3 workers, colocated, by tables.hash alone")
        require_equal(train(folder, 5, "wide", "ps.servers=3", *wide), sparse, "ids beyond 2^32 in bf16")


def hash_resumed():
    """Rows of hash tables go from some servers to others, and to a process that is alone, but to no array."""
    with tempfile.TemporaryDirectory(prefix="mpi_") as folder:
        pathlib.Path(folder, "model.yaml").write_text(MODEL + HASH)
        whole = train(folder, 4, "whole", "ps.servers=2")
        train(folder, 4, "part", "ps.servers=2", "train.steps=13")
        require_equal(train(folder, 3, "part", "ps.servers=1", more=["--resume"]), whole, "a resumed run")
        command = [TANDEM, "eval", "model.yaml", "--checkpoint", "part", "--json", "--set", "offload.embedding=cpu"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=folder)
        require(done.returncode == 0, "one process does not read the checkpoint", done)
        require(json.loads(done.stdout)["metrics"]["auc"] == whole["metrics"]["auc"], "one process finds other metrics", done)
        pathlib.Path(folder, "model.yaml").write_text(MODEL)
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=folder)
        require("was a hash table, and is an array here" in done.stderr, "an array takes a hash table's rows", done)

RULES = """
tables:
  hash:
    - {match: "deep.0*", admit_count: 2, capacity: 100, evict: lfu}
    - {match: "wide.*", admit_probability: 0.7, live: 5}
    - {match: "*", capacity: 130}
checkpoint: {every: 4, keep: 1, incremental: 3}
"""


def hash_rules():
    """Which rows are admitted and which go does not depend on who owns them; a run that goes on from changes on top of a whole
    checkpoint, with other servers, is the undisturbed one; files of different checkpoints are not taken for one."""
    with tempfile.TemporaryDirectory(prefix="mpi_") as folder:
        pathlib.Path(folder, "model.yaml").write_text(MODEL + RULES)
        alone = train(folder, ALONE, "alone", "offload.embedding=cpu")
        require_equal(train(folder, 4, "1_3", "ps.servers=3"), alone, "3 servers")
        whole = train(folder, 4, "2_2", "ps.servers=2")
        train(folder, 5, "part", "ps.servers=3", "train.steps=13")
        points = pathlib.Path(folder, "part", "checkpoints")
        if sorted(p.name for p in points.iterdir()) != ["step-000000004", "step-000000013"]:
            sys.exit(f"{NAME}: the last checkpoint is not changes to the first: {sorted(points.iterdir())}")
        first, last = (points / name / "owner-0001.safetensors" for name in ("step-000000004", "step-000000013"))
        kept = last.read_bytes()
        last.write_bytes(first.read_bytes())
        command = [TANDEM, "eval", "model.yaml", "--checkpoint", "part", "--json", "--set", "offload.embedding=cpu"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=folder)
        require("owner-0001.safetensors is of step 4, this checkpoint is of step 13" in done.stderr, "mixed files are taken", done)
        last.write_bytes(kept)
        require_equal(train(folder, 3, "part", "ps.servers=1", more=["--resume"]), whole, "a resumed run")


def cached():
    """Rows kept by workers change no bit, and those of a table that is not trained, and of an evaluation, are there again."""
    with tempfile.TemporaryDirectory(prefix="mpi_") as folder:
        frozen = MODEL.replace("optimizer:", "optimizer:\n  - {match: \"deep.1*\", frozen: true}")
        pathlib.Path(folder, "model.yaml").write_text(frozen)
        without = train(folder, 4, "without", "ps.servers=2")
        for size in ("1MiB", "500B"):
            kept = train(folder, 4, size, "ps.servers=2", f"ps.cache={size}")
            require_equal(kept, without, f"ps.cache={size}")
            if not 0 < kept["cache"]["hits"] < kept["cache"]["rows"]:
                sys.exit(f"{NAME}: {size}: {kept['cache']}")
            if size == "1MiB" and kept["cache"]["share"] < 0.5:
                sys.exit(f"{NAME}: half of the rows are wanted again: {kept['cache']}")


def larger_than_a_rank():
    """A table that with its state takes more than three times what any rank may have is trained by five of them, to the bits of a
    process without that limit, which a process with it cannot do."""
    limit_kib, rows = 2 << 20, 220_000_000  # of address space; 32 bytes a row in two tables
    assert rows * 32 > 3 * limit_kib * 1024
    limited = lambda words: ["bash", "-c", f"ulimit -v {limit_kib}; exec \"$@\"", "bash", *map(str, words)]
    with tempfile.TemporaryDirectory(prefix="mpi_") as folder:
        pathlib.Path(folder, "model.yaml").write_text(MODEL)
        settings = [f"data.table_rows=[{rows}, 50, 7]", "train.steps=6", "checkpoint.keep=0"]
        alone = train(folder, ALONE, "alone", "offload.embedding=cpu", "tables.storage=sparse", "train.replicas=5", *settings)
        command = [TANDEM, "train", "model.yaml", "--json", "--run", "five"]
        for setting in settings:
            command += ["--set", setting]
        done = mpirun(5, limited(command), cwd=folder)
        require(done.returncode == 0, "five ranks do not train it", done)
        require_equal(summary_of(folder, "five"), alone, "five ranks")
        command[-1:] = [settings[-1], "--set", "offload.embedding=cpu", "--run", "one"]
        done = subprocess.run(limited(command), capture_output=True, text=True, timeout=300, cwd=folder)
        require(done.returncode == 1, "one rank has room for it", done)
