"""Packages of PyPI that read what Tandem writes as other people do: in an environment of their own below .cache/, made once for the
versions of packages.txt. Where it cannot be made (no venv, no registry) the test that asks is skipped, and says why.

    packages.use()      # from here on: under the python of that environment"""
import fcntl
import hashlib
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
CACHE = HERE.parent.parent / ".cache"
LIST = HERE / "packages.txt"
SECONDS = 240
SKIPPED = 77


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(SKIPPED)


def make(folder):
    if subprocess.run([sys.executable, "-c", "import ensurepip, venv"], stderr=subprocess.DEVNULL).returncode:
        skip("there is no module venv here (apt install python3-venv)")
    subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
    words = [folder / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", "--no-deps", "--only-binary", ":all:",
             "--retries", "1", "--timeout", "20", "-r", LIST]
    try:
        done = subprocess.run(words, stderr=subprocess.PIPE, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        skip(f"packages.txt was not installed within {SECONDS} s: the registry is slow")
    if done.returncode:
        skip(f"packages.txt cannot be installed: {(done.stderr.strip().splitlines() or ['pip says nothing'])[-1]}")
    (folder / "whole").touch()


def folder():
    """The environment's folder; made where it is not there, by one process at a time."""
    version = "%d.%d" % sys.version_info[:2]
    path = CACHE / f"packages-{version}-{hashlib.sha256(LIST.read_bytes()).hexdigest()[:12]}"
    CACHE.mkdir(exist_ok=True)
    with open(CACHE / "packages.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (path / "whole").exists():
            make(path)
    return path


def use():
    """Runs the calling program again under that python."""
    python = folder() / "bin" / "python"
    if pathlib.Path(sys.prefix) != folder():
        os.execv(python, [str(python), "-B", *sys.argv])
