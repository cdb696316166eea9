"""`volley runs`: the runs and searches in a folder of results, listed or deleted."""

from __future__ import annotations

import argparse
import math
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from payload.errors import UserError, nearest

if TYPE_CHECKING:
    from payload.run.run_folder import RunFolder


def runs(options: argparse.Namespace) -> int:
    """Lists the runs, or deletes those that are named; returns the exit code.

    Raises:
        UserError: No such run exists, or it is running.
    """
    from payload.run.run_folder import RUNS, RunFolder

    paths = (options.results / RUNS).glob("*/experiment.yaml")
    folders = [RunFolder(path.parent) for path in paths]
    folders.sort(key=lambda folder: folder.path.stat().st_mtime)
    if options.delete:
        _delete([_named(name, folders) for name in options.delete], options.results)
    elif not folders:
        print(f"{options.results}: no runs. Next: volley train")
    else:
        _list(folders)
    return 0


def _named(name: str, folders: list[RunFolder]) -> RunFolder:
    own = Path(name).name
    for folder in folders:
        if folder.path.name == own:
            return folder
    names = [folder.path.name for folder in folders]
    raise UserError(f"--delete {name}: no such run{nearest(own, names)}. Next: volley runs")


def _list(folders: list[RunFolder]) -> None:
    from rich.console import Console
    from rich.table import Table

    from payload.run.driver_lock import has_driver
    from payload.run.panel import clock, number

    table = Table(box=None)
    for column in ("run", "steps", "return", "time", "size", "changed", ""):
        table.add_column(column, overflow="fold", justify="left" if column == "run" else "right")
    for folder in folders:
        steps, mean, seconds = _reached(folder)
        size = sum(file.lstat().st_size for file in folder.path.rglob("*"))
        changed = time.strftime("%Y-%m-%d %H:%M", time.localtime(folder.path.stat().st_mtime))
        cells = [f"{steps:,}", number(mean), clock(seconds), f"{size / 2**20:,.0f} MiB", changed]
        table.add_row(folder.path.name, *cells, "running" if has_driver(folder) else "")
    Console(file=sys.stdout, width=None if sys.stdout.isatty() else 160).print(table)


def _reached(folder: RunFolder) -> tuple[int, float, float]:
    """Returns steps, mean return and seconds; of a search the sums, and the best return."""
    from payload.experiment.settings import EPISODE_RETURN_MEAN
    from payload.run.run_folder import RunFolder
    from payload.tracking.metrics import STEPS, TIME

    trials = [RunFolder(file.parent) for file in folder.path.glob("*/progress.csv")]
    last = [rows[-1] for run in (folder, *trials) if (rows := list(run.progress_rows()))]
    returns = [row[EPISODE_RETURN_MEAN] for row in last]
    best = max((value for value in returns if not math.isnan(value)), default=math.nan)
    return sum(int(row[STEPS]) for row in last), best, sum(row[TIME] for row in last)


def _delete(folders: list[RunFolder], results: Path) -> None:
    """Deletes folders, and their runs in the embedded MLflow database."""
    from payload.run.driver_lock import has_driver
    from payload.run.run_folder import RunFolder
    from payload.tracking.mlflow_experiment import ACTIVE, lifecycle_stage
    from payload.tracking.mlflow_run import Tracking, connected_client

    for folder in folders:
        if has_driver(folder):
            raise UserError(f"--delete {folder.path.name}: it is running; stop it first")
    tracking = Tracking.embedded(results, "")
    for folder in folders:
        trials = [RunFolder(file.parent) for file in folder.path.glob("*/mlflow_run.json")]
        for run_id in filter(None, (run.mlflow_run_id(tracking.uri) for run in (*trials, folder))):
            client = connected_client(tracking)
            if lifecycle_stage(client, run_id) == ACTIVE:
                client.delete_run(run_id)
        shutil.rmtree(folder.path)
        print(f"{folder.path.name}: deleted")
