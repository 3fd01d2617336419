"""What a job writes to a terminal, and to what is none although its first rank has one of mpirun's."""
import os
import pathlib
import pty
import subprocess
import tempfile

from jobs import TANDEM, environment, MODEL, words_of, require


def shown(master):
    """All that comes through a terminal until nobody has it open any more."""
    text = b""
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:
            return text
        if not part:
            return text
        text += part


def on_terminal(folder, name, shell_end):
    """Under a shell on a terminal, `shell_end` after the command: what is shown, and what a file `out` has if there is one."""
    words = words_of(3, [TANDEM, "train", "model.yaml", "--run", name], [])
    master, terminal = pty.openpty()
    command = ["bash", "-c", f'set -o pipefail; "$@" {shell_end}', "bash", *words]
    with subprocess.Popen(command, env=environment(), cwd=folder, stdin=subprocess.DEVNULL, stdout=terminal,
                          stderr=terminal) as job:
        os.close(terminal)
        text = shown(master)
    os.close(master)
    done = subprocess.CompletedProcess(command, job.returncode, text.decode(), "")
    require(job.returncode == 0, f"{name} does not train", done)
    out = pathlib.Path(folder, "out")
    return done, out.read_bytes() if out.exists() else b""


def terminal():
    """On a terminal a line of progress is rewritten; in a file and through a pipe progress is in lines, whatever else is on a terminal."""
    with tempfile.TemporaryDirectory(prefix="mpi_") as folder:
        pathlib.Path(folder, "model.yaml").write_text(MODEL)
        done, _ = on_terminal(folder, "terminal", "")
        require("\r" in done.stdout and "\033[K" in done.stdout, "progress is not rewritten on a terminal", done)
        for name, end in (("file", "> out"), ("pipe", "| cat > out"), ("both", "> out 2>&1")):
            done, out = on_terminal(folder, name, end)
            require(b"\nepoch " in out and b"\ndone in " in out, f"{name}: no lines of progress: {out}", done)
            require(not {b"\r", b"\033"} & {out[i:i + 1] for i in range(len(out))}, f"{name}: as on a terminal: {out}", done)
