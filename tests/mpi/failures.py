"""Jobs in which something goes wrong: ranks that are killed or stand still, signals, and what is refused."""
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

from jobs import (
    NAME, TANDEM, SAMPLES, environment, ALONE, MODEL, STEADY, words_of, mpirun, require, said, train, require_equal, children,
    wait_for, Job, require_same_course)


def killed():
    """A rank that is killed in the middle, of either role, is named by a survivor; the job ends by itself, not with 0, and the
    last checkpoint is whole: a resumed run ends with the bits of an undisturbed one."""
    endless = ["train.epochs=100000", "checkpoint.every=20", "log.level=info", "ps.recovery=off"]
    with tempfile.TemporaryDirectory(prefix="mpi_") as folder:
        pathlib.Path(folder, "model.yaml").write_text(MODEL)
        for victim, role in ((3, "server 1"), (1, "worker 1")):
            name = f"k{victim}"
            command = [TANDEM, "train", "model.yaml", "--run", name, *[w for s in endless for w in ("--set", s)], "--set", "ps.servers=2"]
            job = subprocess.Popen(words_of(4, command, ["--enable-recovery"]), env=environment(), cwd=folder,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            wait_for(lambda: list(pathlib.Path(folder, name).glob("checkpoints/*/manifest.json")))
            os.kill(children(job.pid, "tandem")[victim], signal.SIGKILL)
            said, _ = job.communicate(timeout=60)
            if f"{role} (rank {victim} on " not in said or "is lost" not in said:
                sys.exit(f"{NAME}: nobody names rank {victim}:\n{said}")
            if said.count("is lost") != 1:
                sys.exit(f"{NAME}: the loss is told more than once:\n{said}")
        newest = max(int(p.parent.name.rsplit("-", 1)[1]) for p in pathlib.Path(folder, "k1").glob("checkpoints/*/manifest.json"))
        steps = f"train.steps={newest + 7}"
        whole = train(folder, 4, "whole", "ps.servers=2", "train.epochs=100000", steps)
        require_equal(train(folder, 4, "k1", "ps.servers=2", "train.epochs=100000", steps, more=["--resume"]), whole, "after a loss")


def recovered():
    """A server is killed and a spare takes its place; then the first worker, whose place it takes now, while the other server owns
    all rows. The loss curve has the bits of one process."""
    with tempfile.TemporaryDirectory(prefix="mpi_") as folder:
        pathlib.Path(folder, "model.yaml").write_text(MODEL)
        whole = train(folder, ALONE, "whole", "offload.embedding=cpu", "train.replicas=2", *STEADY)
        job = Job(folder, 5, "job", "ps.servers=2", "ps.spares=1", *STEADY)
        job.reach(50)
        job.send(3, signal.SIGKILL)
        job.need("server 1 (rank 3 on ")
        job.need("going on after step ")
        job.reach(200)
        job.send(0, signal.SIGKILL)
        job.need("worker 0 (rank 0 on ")
        job.need("going on after step ")
        require_same_course(job, job.end(), whole, pathlib.Path(folder, "whole"))
        for words in ("rank 4  server 1 on ", "rank 4  worker 0 on "):
            if not any(words in line for line in job.said):
                sys.exit(f'{NAME}: nobody says "{words}":\n{"".join(job.said)}')


def kill_at_random(folder, seed, wholes):
    """One job, killed once or twice; in seconds, from a kill until a rank says so, or None where it had ended by then."""
    draw = random.Random(seed)
    workers, servers, spares = draw.choice([(2, 2, 0), (2, 1, 1), (3, "colocated", 0), (2, "colocated", 1)])
    ranks = workers + spares + (servers if servers != "colocated" else 0)
    if workers not in wholes:
        name = f"whole{workers}"
        wholes[workers] = train(folder, ALONE, name, "offload.embedding=cpu", f"train.replicas={workers}", *STEADY)
    job = Job(folder, ranks, f"job{seed}", f"ps.servers={servers}", f"ps.spares={spares}", *STEADY)
    noticed = None
    job.need("rank 0")  # all ranks have met
    for victim in draw.sample(range(ranks), draw.choice([1, 1, 2])):
        if draw.random() < 0.8:  # else before the first checkpoint; a second one, while the first is dealt with
            job.reach(50 * draw.randrange(1, 9))
        begin = time.monotonic()
        if job.send(victim, signal.SIGKILL) and draw.random() < 0.7 and job.hear("is lost"):
            noticed = max(noticed or 0, time.monotonic() - begin)
    require_same_course(job, job.end(), wholes[workers], pathlib.Path(folder, f"whole{workers}"))
    return noticed


def killed_at_random():
    """Any rank, at any moment; TANDEM_KILLS jobs in a row, from the seed TANDEM_SEED on."""
    jobs, first = int(os.environ.get("TANDEM_KILLS", "2")), int(os.environ.get("TANDEM_SEED", "1"))
    wholes, times = {}, []
    with tempfile.TemporaryDirectory(prefix="mpi_") as folder:
        pathlib.Path(folder, "model.yaml").write_text(MODEL)
        for seed in range(first, first + jobs):
            print("seed", seed, flush=True)
            times.append(kill_at_random(folder, seed, wholes))
    print("seconds from a kill to the line that tells it:", *(f"{t:.2f}" if t else "-" for t in times))


def stopped():
    """A server that stands still is waited for, and told of, and the job goes on when it does; so it does without a worker that
    stands still for longer than the deadline: it is killed, and the other runs both replicas."""
    pause = float(os.environ.get("TANDEM_STOP_SECONDS", "0"))  # by hand: a stop longer than what a network or a deadline bears
    with tempfile.TemporaryDirectory(prefix="mpi_") as folder:
        pathlib.Path(folder, "model.yaml").write_text(MODEL)
        whole = train(folder, ALONE, "whole", "offload.embedding=cpu", "train.replicas=2", *STEADY)
        job = Job(folder, 3, "server", "ps.servers=1", "ps.notice=0.5s", *STEADY)
        job.reach(50)
        job.send(2, signal.SIGSTOP)
        job.need("server 0 (rank 2 on ")
        time.sleep(pause)
        job.send(2, signal.SIGCONT)
        job.need("is back after")
        require_same_course(job, job.end(), whole, pathlib.Path(folder, "whole"))
        job = Job(folder, 3, "worker", "ps.servers=1", "ps.deadline=1s", *STEADY)
        job.reach(50)
        job.send(1, signal.SIGSTOP)
        job.need("worker 1 (rank 1 on ")
        job.need("rank 0  workers 0, 1 on ")
        require_same_course(job, job.end(), whole, pathlib.Path(folder, "whole"))


def signalled():
    """SIGUSR2, which mpirun passes on to all ranks, or SIGTERM to a rank that only serves: all stop after the same window, with its
    checkpoint, and 130."""
    with tempfile.TemporaryDirectory(prefix="mpi_") as folder:
        pathlib.Path(folder, "model.yaml").write_text(MODEL)
        for name, rank, which in (("all", None, signal.SIGUSR2), ("server", 2, signal.SIGTERM)):
            job = Job(folder, 3, name, "ps.servers=1", "train.epochs=100000", "train.log_every=10", "checkpoint.every=50", more=())
            job.reach(50)
            if rank is None:
                job.process.send_signal(which)
            else:
                job.send(rank, which)
            job.need("--resume")
            job.process.communicate(timeout=60)
            begun, stop = [re.search(rf" after step (\d+){then}", "".join(job.said)) for then in (": writing a checkpoint", " of ")]
            if not begun or not stop or begun[1] != stop[1] or begun.start() > stop.start():
                sys.exit(f"{NAME}: {name} does not say once that a checkpoint is written, then that it is:\n{''.join(job.said)}")
            if any("\r" in line for line in job.said) or not any(line.startswith("epoch ") for line in job.said):
                sys.exit(f"{NAME}: progress is not in lines where nobody looks on:\n{job.said}")
            if job.process.returncode != 130 or not (job.run / f"checkpoints/step-{int(stop[1]):09}/manifest.json").exists():
                sys.exit(f"{NAME}: {name} does not stop with a checkpoint ({job.process.returncode}):\n{''.join(job.said)}")


def left_out():
    """In the evaluation after the last step a signal to all ranks, or to one that only waits for it, leaves it out: 130, what to do next,
    no summary. Resumed, the job has one."""
    with tempfile.TemporaryDirectory(prefix="mpi_") as folder:
        pathlib.Path(folder, "model.yaml").write_text(MODEL)
        steps = ("ps.servers=1", "train.steps=8")
        for name, rank, which in (("all", None, signal.SIGUSR2), ("first", 0, signal.SIGTERM), ("second", 1, signal.SIGTERM),
                                  ("server", 2, signal.SIGTERM)):
            job = Job(folder, 3, name, *steps, "data.test_rows=1000000000", more=())  # hours of it
            job.reach(8)
            if rank is None:
                job.process.send_signal(which)
            else:
                job.send(rank, which)
            job.need(" after the last step: training is done, the evaluation was left out")
            job.need(f"evaluate with: tandem eval model.yaml --checkpoint {name} ")
            job.need(f"or, with {name}/summary.json: mpirun --oversubscribe -n 3 tandem train model.yaml --run {name} --resume ")
            job.process.communicate(timeout=60)
            if job.process.returncode != 130 or (job.run / "summary.json").exists():
                sys.exit(f"{NAME}: {name} does not end without a summary ({job.process.returncode}):\n{''.join(job.said)}")
        summary = train(folder, 3, "all", *steps, more=["--resume"])
        if summary["steps"] != 8 or "auc" not in summary["metrics"]:
            sys.exit(f"{NAME}: the evaluation is not made up for: {summary}")


def restarted():
    """A server is lost before there is a checkpoint: the job begins once more, and says so."""
    with tempfile.TemporaryDirectory(prefix="mpi_") as folder:
        pathlib.Path(folder, "model.yaml").write_text(MODEL)
        whole = train(folder, ALONE, "whole", "offload.embedding=cpu", "train.replicas=2", "train.epochs=40")
        job = Job(folder, 4, "job", "ps.servers=1", "ps.spares=1", "train.epochs=40", "train.log_every=5")
        job.need("epoch ")
        job.send(2, signal.SIGKILL)
        job.need("going on before the first step")
        require_same_course(job, job.end(), whole, pathlib.Path(folder, "whole"))


def absent():
    """Ranks that wait for others that never come to MPI say who these are, and end."""
    with tempfile.TemporaryDirectory(prefix="mpi_") as folder:
        pathlib.Path(folder, "model.yaml").write_text(MODEL)
        of_three = f'[ $OMPI_COMM_WORLD_RANK = 2 ] && exec sleep 1000; exec "{TANDEM}" train model.yaml --set ps.deadline=2s'
        done = mpirun(3, ["sh", "-c", of_three], cwd=folder)
        require(re.search(r"not all started within 4 s \(twice ps.deadline\): rank 2 \(process \d+, sleep\) has not come\n", said(done))
                and done.returncode not in (0, None), "nobody says who is missing", done)


def refused():
    with tempfile.TemporaryDirectory(prefix="mpi_") as folder:
        pathlib.Path(folder, "model.yaml").write_text(MODEL)
        for ranks, setting, words, code in ((2, "ps.servers=2", "2 of 2 ranks to serve, so none is left to work", 2),
                                            (2, "ps.spares=2", "2 of 2 ranks spare, so none is left to work", 2),
                                            (2, "train.replicas=3", "train.replicas is 3, which 2 workers cannot share out", 2),
                                            (2, "train.accumulate=10001", "a window of 20002 batches, over all workers, is more", 2),
                                            (ALONE, "train.seed=1", "start it with mpirun", 2)):
            command = [TANDEM, "train", "model.yaml", "--set", setting]
            done = mpirun(ranks, command, cwd=folder) if ranks != ALONE else subprocess.run(
                command, capture_output=True, text=True, cwd=folder)
            require(words in said(done) and done.returncode == code, f"{setting} is not refused as it should be", done)
        for command in ([TANDEM, "plan"], [*words_of(2, [TANDEM, "train"], [])]):
            done = subprocess.run([*command, SAMPLES / "gpt/gpt.yaml", "--set", "offload.embedding=ps"], env=environment(),
                                  capture_output=True, text=True, timeout=300, cwd=folder)
            require('"tok.weight", which "head/linear" reads too' in said(done) and done.returncode == 2 and said(done).count("reads too") == 1,
                    "a table that is an output layer too is not refused as it should be", done)
