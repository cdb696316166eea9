"""Makes the Python environment of JupyterLab, when it is asked for: jupyter-environment.service.

It holds the packages of jupyter.txt and reads all others from the cluster's environment, so that a
kernel imports what an experiment does. It runs as root: ray's code must not change it.
"""

import hashlib
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
    # uv clears only what is an environment, not what an interrupted start has left.
    shutil.rmtree(JUPYTER, ignore_errors=True)
    try:
        _uv("venv", "--python", PYTHON, JUPYTER)
        options = ("--no-cache", "--compile-bytecode", "--only-binary", ":all:", "--no-deps")
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
    subprocess.run(list(map(str, command)), check=True)


def _packages(environment: Path) -> Path:
    return next(environment.glob("lib/python*/site-packages"))


if __name__ == "__main__":
    sys.exit(main())
