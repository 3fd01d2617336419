"""Jobs whose workers keep a share each of the optimizer's state."""
import concurrent.futures
import pathlib
import signal
import sys
import tempfile

from jobs import NAME, ALONE, MODEL, LAYERS, train, require_equal, Job, require_same_course

SHARED = ["ps.shard_optimizer=on", *LAYERS]


def state_bytes(summary):
    return sum(device["state_bytes"] for device in summary["devices"])


def shared_case(folder, name, ranks, replicas, embedding, settings):
    """A job whose workers share optimizer state, and one process: the same results, and without served tables the same checkpoint."""
    settings = [*settings, f"train.replicas={replicas}", "train.steps=8"]
    alone = train(folder, ALONE, f"alone_{name}", "offload.embedding=cpu", *settings, *LAYERS)
    job = train(folder, ranks, name, f"offload.embedding={embedding}", *settings, *SHARED)
    require_equal(job, alone, name)
    files = [next(pathlib.Path(folder, run, "checkpoints").glob("step-*/shard-0000.safetensors")) for run in (name, f"alone_{name}")]
    if embedding == "none" and files[0].read_bytes() != files[1].read_bytes():
        sys.exit(f"{NAME}: {name}: the checkpoint is not that of one process")
    if (name == "fp16") != (alone["skipped_steps"] > 0):
        sys.exit(f"{NAME}: {name} shows nothing")
    saved, wanted = state_bytes(alone) - state_bytes(job), 8 * 300 * 300 * 2 / 3  # Adam's moments
    if name == "clip" and not wanted * 0.9 < saved < wanted * 1.1:
        sys.exit(f"{NAME}: a worker has {state_bytes(job)} of {state_bytes(alone)} bytes of state")


def shared_bits():
    """Workers that keep a share each of the dense parameters' optimizer state have the bits of one process: in several buckets, with clipping
    and accumulation, beside an accelerator that computes in bf16, with served tables and servers apart, with overflows in fp16, with
    parameters in 16 bit, with a rule that looks at whole parameters. Each has its part of the state, give or take blocks."""
    accel = ["devices=[cpu, {name: accel, backend: emulated, memory: 64MiB, cores: 1}]", "placement.default=accel"]
    lamb = ["optimizer=[{match: \"*deep*\", name: adagrad, lr: 0.1}, {match: \"*wide*\", name: adagrad, lr: 0.1}, {match: \"*\", name: lamb, lr: 0.01}]"]
    cases = (("clip", 3, 3, "none", ["train.clip_norm=0.05", "train.accumulate=2"]),
             ("fp16", 3, 2, "ps", ["ps.servers=1", "train.precision=fp16", "train.loss_scale.initial=8388608"]),
             ("accel", 2, 4, "ps", ["train.precision=bf16", "train.clip_norm=0.05", *accel]),
             ("narrow", 2, 2, "none", ["train.precision=bf16", "offload.master=none"]),
             ("lamb", 2, 2, "none", lamb))
    with tempfile.TemporaryDirectory(prefix="mpi_") as folder:
        pathlib.Path(folder, "model.yaml").write_text(MODEL)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:  # ranks mostly start and end
            list(pool.map(lambda case: shared_case(folder, *case), cases))


def shared_resumed():
    """Checkpoints of shared state are those of one process, byte for byte, and go on in both directions and on other numbers of ranks. What a
    worker that is lost had comes from the last one."""
    replicas = ["train.replicas=6", "offload.embedding=none"]
    with tempfile.TemporaryDirectory(prefix="mpi_") as folder:
        pathlib.Path(folder, "model.yaml").write_text(MODEL)
        whole = train(folder, ALONE, "whole", *replicas, *LAYERS)
        train(folder, ALONE, "run", *replicas, *LAYERS, "train.steps=2")
        train(folder, 3, "run", *replicas, *SHARED, "train.steps=4", more=["--resume"])
        train(folder, ALONE, "run", *replicas, *LAYERS, "train.steps=5", more=["--resume"])
        require_equal(train(folder, 2, "run", *replicas, *SHARED, more=["--resume"]), whole, "gone on by 3, 1 and 2 workers")
        last = f"checkpoints/step-{whole['steps']:09}/shard-0000.safetensors"
        if pathlib.Path(folder, "run", last).read_bytes() != pathlib.Path(folder, "whole", last).read_bytes():
            sys.exit(f"{NAME}: the checkpoint of two ranks is not that of one process")
        course = ["offload.embedding=none", "train.epochs=4", "checkpoint.every=10", LAYERS[0]]
        whole = train(folder, ALONE, "undisturbed", "train.replicas=3", *course)
        job = Job(folder, 3, "job", "ps.shard_optimizer=on", *course)
        job.reach(20)
        job.send(1, signal.SIGKILL)
        job.need("going on after step ")
        require_same_course(job, job.end(), whole, pathlib.Path(folder, "undisturbed"))
