"""Messages between ranks: what tests/mpi/ranks_comm.c, ranks_flow.c and ranks_split.c do under mpirun."""
import pathlib
import tempfile

from jobs import COMM, FLOW, SPLIT, mpirun, at_once, require


def comm_exchange():
    for ranks, how in ((1, "exchange"), (2, "exchange"), (3, "far"), (5, "exchange")):
        done = mpirun(ranks, [COMM, how])
        require(done.returncode == 0, f"{ranks} ranks do not exchange messages ({how})", done)


def comm_add_up():
    """Sums by MPI have the same bits on all ranks; at 5 of them they are not those of a left fold, so no more is asked."""
    for ranks in (3, 6):
        done = mpirun(ranks, [COMM, "add_up"])
        require(done.returncode == 0, f"{ranks - 1} ranks do not sum up", done)


def comm_flow():
    """Small chunks, so that long messages have many, and queues that are full, are ordinary."""
    for ranks, what in ((2, "chunks"), (3, "chunks"), (3, "queues")):
        done = mpirun(ranks, [FLOW, what])
        require(done.returncode == 0, f"{ranks} ranks, {what}", done)


def comm_large_slow():
    done = mpirun(2, [FLOW, "large"])
    require(done.returncode == 0, "a message above 2 GiB", done)


def mpirun_heard(ranks, how, lost):
    """What the other ranks heard of one that ends."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "heard"
        done = mpirun(ranks, [COMM, how, lost, file], ["--enable-recovery"])
        return done, file.read_text() if file.exists() else ""


def comm_lost():
    """Each survivor names the rank that was killed, with its host and last step. mpirun is told not to kill them first; its own
    exit code is 0 then."""
    for ranks, lost in ((2, 1), (3, 0)):
        done, heard = mpirun_heard(ranks, "lost", lost)
        said = [line for line in heard.splitlines() if f"worker {lost} (rank {lost} on " in line]
        require(len(said) == ranks - 1, f"{len(said)} of {ranks - 1} survivors name rank {lost}", done)


def comm_error():
    done, heard = mpirun_heard(3, "error", 1)
    require(heard.count("the disk is full") == 2, f"the others do not say why rank 1 ended, but: {heard}", done)


def comm_short():
    """A message shorter, or longer, than what is waited for is refused with its sender's name, whichever was first."""
    jobs = [(2, [COMM, how, n]) for how in ("short", "late") for n in (5, 100000, 200001)]
    for (_, command), done in zip(jobs, at_once(*jobs)):
        require("refused: worker 1" in done.stdout, f"{command[1:]} is not refused as it should be", done)


def comm_split():
    """Where the network is split one side goes on, the one with more ranks, or of two halves that with rank 0; the other ends."""
    expected = (4, {0, 1}), (5, {2, 3, 4})
    for (ranks, goes_on), done in zip(expected, at_once(*((ranks, [SPLIT, "split", 2]) for ranks, _ in expected))):
        said = {r for r in range(ranks) if f"rank {r}: goes on" in done.stdout}, {r for r in range(ranks) if f"rank {r}: ends" in done.stdout}
        require(said == (goes_on, set(range(ranks)) - goes_on), f"of {ranks} ranks, split below 2, others go on: {said}", done)


def comm_late():
    """A rank that lives and does not come to go on after a loss is named, the one that all report to as well."""
    for late, done in enumerate(at_once((4, [SPLIT, "late", 0]), (4, [SPLIT, "late", 1]))):
        require(done.stdout.count(": ends") == 3, f"not all end because rank {late} does not come", done)


def comm_held():
    """Memory of a message that a loss cut short may be freed, whatever the rank that was lost does when it is back."""
    done = mpirun(3, [SPLIT, "held"], ["--enable-recovery", "--timeout", "60"])  # a rank that stands still ends with it
    require(done.stdout.count(": goes on") == 2, "not both ranks go on", done)
