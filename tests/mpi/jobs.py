"""How jobs are started under mpirun, watched and compared: what the tests of tests/mpi/run have in common."""
import atexit
import concurrent.futures
import io
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

from event_files import losses

MPIRUN, NAME, TANDEM, COMM, SLOW, FLOW, STEADY_RANKS, SPLIT = sys.argv[1:9]
SAMPLES = pathlib.Path(__file__).resolve().parent.parent.parent / "samples"
ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"} if os.getuid() == 0 else {}
QUIET = {"OMPI_MCA_btl_vader_single_copy_mechanism": "none", "OMPI_MCA_mpi_yield_when_idle": "1", "OMP_NUM_THREADS": "1",
         "ASAN_OPTIONS": "detect_leaks=0"}  # Open MPI's own, of modules that are gone by then
ALONE = "alone"

# A small model with bags of ids, two kinds of tables and short last batches.
MODEL = """
model:     {name: wide_deep, dim: 4, hidden: [8]}
data:      {format: synthetic, train_rows: 1000, test_rows: 100, table_rows: [300, 50, 7], dense: 3, bag: 3, batch: 24}
devices:   [cpu]
offload:   {embedding: ps}
train:     {epochs: 2, seed: 3}
optimizer:
  - {match: "wide.*", name: ftrl, lr: 0.1, initial_accumulator: 0.1}
  - {match: "deep.0*", name: rowwise_adagrad, lr: 0.05}
  - {match: "deep.*", name: lazy_adam, lr: 0.01}
  - {match: "*", name: adam, lr: 0.01}
"""

LAYERS = ("model.hidden=[300, 300]", "train.epochs=1")  # gradients of more than one bucket
STEADY = ["train.epochs=40", "checkpoint.every=50"]


def environment():
    """A job's own: one that begins where mpirun keeps its files while another of the same user ends would find no place for them."""
    own = tempfile.mkdtemp(prefix="job_")
    atexit.register(shutil.rmtree, own, ignore_errors=True)
    return {**os.environ, **ROOT, **QUIET, "TMPDIR": own}


def words_of(ranks, command, more):
    return [MPIRUN, "--oversubscribe", "--bind-to", "none", "-n", str(ranks), *more, *map(str, command)]


def mpirun(ranks, command, more=(), **options):
    return subprocess.run(words_of(ranks, command, more), env=environment(), capture_output=True, text=True,
                          timeout=300, **options)


def said(done):
    """All that a job printed: mpirun of Open MPI 5 sometimes passes on what a rank writes to one stream through the other."""
    return done.stdout + done.stderr


def at_once(*jobs):
    """The same of several jobs, (ranks, command) each, under --enable-recovery: they mostly wait."""
    with concurrent.futures.ThreadPoolExecutor() as pool:
        return list(pool.map(lambda job: mpirun(*job, ["--enable-recovery"]), jobs))


def require(good, what, done):
    if not good:
        sys.exit(f"{NAME}: {what}; exit code {done.returncode}\n{done.stdout}\n{done.stderr}")


def train(folder, ranks, name, *settings, more=()):
    """A run's summary, from its file: mpirun 5 can lose the end of what a rank prints. ranks ALONE: without mpirun."""
    command = [TANDEM, "train", "model.yaml", "--json", "--run", name, *more]
    for setting in settings:
        command += ["--set", setting]
    if ranks == ALONE:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=folder)
    else:
        done = mpirun(ranks, command, cwd=folder)
    require(done.returncode == 0, f"{name} does not train", done)
    require("{" in done.stdout, f"{name} prints no summary", done)
    return summary_of(folder, name)


def summary_of(folder, name):
    return json.loads(pathlib.Path(folder, name, "summary.json").read_text())


def results(summary):
    return summary["parameters_checksum"], summary["loss"], summary["steps"], summary["metrics"]


def require_equal(a, b, what):
    if results(a) != results(b):
        sys.exit(f"{NAME}: {what}: {results(a)} and {results(b)}")


def profile_of(folder, run, *more):
    done = subprocess.run([TANDEM, "profile", run, "--json", *more], capture_output=True, text=True, timeout=300, cwd=folder)
    require(done.returncode == 0, f"{run} is not analysed", done)
    return json.loads(done.stdout)


def ranks_of(report):
    return {rank["rank"]: rank for rank in report["ranks"]["ranks"]}


def children(parent, name):
    """Processes of that name below another, by rank."""
    found = {}
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            stat = (path / "stat").read_text().rsplit(")", 1)[1].split()
            if int(stat[1]) == parent and (path / "comm").read_text().strip() == name:
                rank = [v for v in (path / "environ").read_text().split("\0") if v.startswith("OMPI_COMM_WORLD_RANK=")]
                found[int(rank[0].split("=")[1])] = int(path.name)
        except (OSError, IndexError, ValueError):
            continue
    return found


def wait_for(what, seconds=200):
    """Looks again and again. For what no rank says a line about and no process ends with: a file that is to come, or to grow, in a
    folder that is to come; where there is such a line, Job.need() waits for it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = what()
        if value:
            return value
        time.sleep(0.02)
    sys.exit(f"{NAME}: waited {seconds} s in vain")


class Job:
    """A training under mpirun that goes on, or not, when ranks are lost."""

    def __init__(self, folder, ranks, name, *settings, more=("--enable-recovery",)):
        self.run = pathlib.Path(folder, name)
        self.said = []
        command = [TANDEM, "train", "model.yaml", "--run", name]
        for setting in settings:
            command += ["--set", setting]
        self.process = subprocess.Popen(words_of(ranks, command, more), env=environment(), cwd=folder,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.process.stdout = io.TextIOWrapper(self.process.stdout, newline="\n")  # a line that is rewritten stays one
        atexit.register(self.process.kill)  # ends its ranks too, should the test fail

    def hear(self, words):
        """Reads what it says until a line has these words; None: it ended without."""
        for line in self.process.stdout:
            self.said.append(line)
            if words in line:
                return line
        return None

    def need(self, words):
        if not self.hear(words):
            self.process.wait()
            sys.exit(f'{NAME}: nobody says "{words}":\n{"".join(self.said)}')

    def reach(self, step):
        """Waits for a checkpoint of at least so many steps."""
        wait_for(lambda: self.process.poll() is not None or
                 any(int(p.parent.name[5:]) >= step for p in self.run.glob("checkpoints/step-?????????/manifest.json")))

    def send(self, rank, which):
        pid = children(self.process.pid, "tandem").get(rank)
        if pid:
            os.kill(pid, which)
        return pid

    def end(self):
        self.said += self.process.stdout.readlines()  # what hear() has read ahead too
        self.process.wait(timeout=120)
        path = self.run / "summary.json"
        if not path.exists():
            sys.exit(f"{NAME}: it did not end well ({self.process.returncode}):\n{''.join(self.said)}")
        return json.loads(path.read_text())


def require_same_course(job, summary, whole, run):
    """The end and every loss on the way, those that were computed again too, have the bits of an undisturbed run."""
    expected = dict(losses(run))
    for step, loss in losses(job.run):
        if expected.get(step) != loss:
            sys.exit(f"{NAME}: another loss in step {step}:\n{''.join(job.said)}")
    if {step for step, _ in losses(job.run)} != set(expected):
        sys.exit(f"{NAME}: steps without a loss:\n{''.join(job.said)}")
    require_equal(summary, whole, "after a loss")
