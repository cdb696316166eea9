"""Makes the Python environment of JupyterLab, when it is asked for: jupyter-environment.service.

It holds the packages of jupyter.txt and reads all others from the cluster's environment, so that a
kernel imports what an experiment does. Neither root nor ray installs it: root runs nothing of the
environment, and ray's code must not change what a person's notebooks import.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from .paths import JUPYTER, PYTHON

LOCK = Path(__file__).with_name("jupyter.txt")
"""requirements/jupyter.txt: what the cluster's environment does not have."""


def main() -> int:
    wanted = hashlib.sha256(LOCK.read_bytes()).hexdigest()
    made_from = JUPYTER / "lock.sha256"
    if made_from.exists() and made_from.read_text() == wanted:
        return 0
    print(f"installing JupyterLab into {JUPYTER}", flush=True)
    # uv clears only what is an environment, not what an interrupted start has left. The folder
    # stays: it is in one of root's.
    JUPYTER.mkdir(parents=True, exist_ok=True)
    for path in JUPYTER.iterdir():
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    try:
        _uv("venv", "--python", PYTHON, JUPYTER)
        options = ("--compile-bytecode", "--only-binary", ":all:", "--no-deps")
        python = ("--python", JUPYTER / "bin/python")
        _uv("pip", "install", *options, *python, "--require-hashes", "--requirement", LOCK)
    except subprocess.CalledProcessError:
        return 1  # uv has printed the reason.
    cluster, own = (_packages(folder) for folder in (PYTHON.parents[1], JUPYTER))
    (own / "cluster.pth").write_text(f"import site; site.addsitedir({str(cluster)!r})\n")
    made_from.write_text(wanted)
    return 0


def _uv(*words: str | Path) -> None:
    command = [PYTHON.with_name("uv"), "--quiet", *words]
    # Its user has no home for a cache.
    environment = {**os.environ, "UV_NO_CACHE": "1"}
    subprocess.run(list(map(str, command)), env=environment, check=True)


def _packages(environment: Path) -> Path:
    return next(environment.glob("lib/python*/site-packages"))


if __name__ == "__main__":
    sys.exit(main())
