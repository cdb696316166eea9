"""head.results save | restore: MLflow's database and the runs to Blob, or the database from it."""

from __future__ import annotations

import os
import sys

from ..blob import container, retry
from ..paths import SAVED
from .sync import restore, save


def main(verb: str) -> int:
    name = os.environ["RESULTS_CONTAINER"]
    if verb == "restore":
        retry(f"{name}/mlflow.db", lambda: restore(container(name)))
        return 0
    if not save(container(name)):
        return 1
    SAVED.touch()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
