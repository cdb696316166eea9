"""Where one training run keeps its files: results/runs/<name>/."""

from __future__ import annotations

import csv
import json
import math
import re
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from payload.atomic_file import replace_text, replaced
from payload.errors import TemporaryError, UserError
from payload.experiment.file import to_yaml
from payload.experiment.settings import INFO_MEAN, Experiment
from payload.may_pass import may_pass
from payload.run.checkpoints import CheckpointStore
from payload.tracking.metrics import ITERATION, METRICS, STEPS, columns, read_rows
from payload.tracking.mlflow_run import Tracking
from payload.tracking.report import Report

RUNS = "runs"
UNDELIVERED = "mlflow_undelivered.json"
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True)
class RunFolder:
    """One run: its experiment, log, progress, checkpoints and MLflow run."""

    path: Path

    def checkpoints(self, keep: int = 3) -> CheckpointStore:
        return CheckpointStore(self.path / "checkpoints", keep)

    @property
    def log(self) -> Path:
        """Output of Ray, RLlib and MLflow."""
        return self.path / "driver_log.txt"

    @property
    def experiment_file(self) -> Path:
        return self.path / "experiment.yaml"

    @property
    def progress_file(self) -> Path:
        """One line for each iteration, as RLlib's own progress.csv."""
        return self.path / "progress.csv"

    @property
    def learning_curve(self) -> Path:
        return self.path / "learning_curve.png"

    @property
    def video(self) -> Path:
        return self.path / "evaluation.mp4"

    @property
    def mlflow_run_file(self) -> Path:
        """Holds the id of the MLflow run, so that a resumed run continues in it."""
        return self.path / "mlflow_run.json"

    @property
    def undelivered_file(self) -> Path:
        """Holds what MLflow has not received of a run that has ended; see Outbox."""
        return self.path / UNDELIVERED

    def tracking(
        self, results: Path, server: str | None, search: RunFolder | None = None
    ) -> Tracking:
        """Returns where the MLflow run of this folder is, or will be, kept.

        Args:
            server: URI of an MLflow server; None is the database in `results`.
            search: The search that the run is a trial of.
        """
        tracking = Tracking.at(server, results, self.path.name)
        return replace(
            tracking,
            # Another tracking server does not know the run: there it becomes a new one.
            run_id=self.mlflow_run_id(tracking.uri),
            parent_file=None if search is None else search.mlflow_run_file,
            key=self._mlflow_key(),
            undelivered=self.undelivered_file,
        )

    def mlflow_run_id(self, tracking_uri: str) -> str | None:
        """Returns the id of this run's MLflow run at `tracking_uri`, None if it has none."""
        run = self._mlflow_run()
        return run.get("run_id") if run.get("tracking_uri") == tracking_uri else None

    def _mlflow_key(self) -> str:
        """Returns the value of the tag KEY of this run's MLflow run; the same after a restart."""
        run = self._mlflow_run()
        if "key" not in run:
            run["key"] = uuid.uuid4().hex
            with suppress(OSError):  # A full disk must not keep a run from starting.
                replace_text(self.mlflow_run_file, json.dumps(run))
        return run["key"]

    def remember_mlflow_run(self, run_id: str, tracking_uri: str) -> None:
        run = self._mlflow_run() | {"run_id": run_id, "tracking_uri": tracking_uri}
        replace_text(self.mlflow_run_file, json.dumps(run))

    def _mlflow_run(self) -> dict[str, str]:
        """Returns the content of mlflow_run_file; empty if it is missing or damaged."""
        try:
            run = json.loads(self.mlflow_run_file.read_text())
        except (OSError, ValueError):
            return {}
        return run if isinstance(run, dict) else {}

    def append_progress(self, report: Report) -> None:
        """Adds a row to progress.csv; what earlier rows lack gets a column, with nan in them."""
        row = {name: _rounded(value) for name, value in columns(report).items()}
        names = self._progress_names()
        if new := [name for name in row if name not in names]:
            names += new
            self._rewrite_progress(names)
        with self.progress_file.open("a", newline="") as file:
            csv.DictWriter(file, names, restval="nan").writerow(row)

    def cut_progress(self, iteration: int) -> None:
        """Drops the rows after `iteration`, from which a resumed run continues.

        Rows of another version get the columns of this one.
        """
        if self.progress_file.exists():
            info = (name for name in self._progress_names() if name.startswith(INFO_MEAN))
            self._rewrite_progress([*(metric.name for metric in METRICS), *info], iteration)

    def _progress_names(self) -> list[str]:
        """Returns the header of progress.csv; empty if it is missing."""
        if not self.progress_file.exists():
            return []
        with self.progress_file.open(newline="") as file:
            return next(csv.reader(file), [])

    def _rewrite_progress(self, names: Sequence[str], until: float = math.inf) -> None:
        """Gives progress.csv these columns, and its rows up to an iteration, one by one.

        A run of weeks has too many rows for the memory.
        """
        with replaced(self.progress_file) as file:
            writer = csv.DictWriter(file, names, restval="nan", extrasaction="ignore")
            writer.writeheader()
            for row in self.progress_rows():
                if row[ITERATION] <= until:
                    writer.writerow({name: _rounded(value) for name, value in row.items()})

    def progress_rows(self) -> Iterator[dict[str, float]]:
        """Yields each whole row of progress.csv, with NaN for unknown values."""
        if not self.progress_file.exists():
            return
        with self.progress_file.open(newline="") as file:
            # A power cut or a full disk may have cut the last row off, within a number.
            yield from read_rows(line for line in file if line.endswith("\n"))

    def recorded_metrics(self, until: float = math.inf) -> Iterator[tuple[int, dict[str, float]]]:
        """Yields environment steps and known metrics of each row up to an iteration."""
        for row in self.progress_rows():
            values = {name: value for name, value in row.items() if math.isfinite(value)}
            if STEPS in values and row[ITERATION] <= until:
                yield int(values[STEPS]), values


def create_run_folder(
    results: Path, experiment: Experiment, prefix: str = "", name: str | None = None
) -> RunFolder:
    """Makes a new run's folder, named after algorithm, environment and time.

    Args:
        name: The folder's name instead.

    Raises:
        UserError: It cannot be one, or exists.
    """
    if name is not None:
        check_name(results, name)
        folder = RunFolder(results / RUNS / name)
        if not _make(folder.path):
            raise _taken(name, folder.path)
    else:
        # "walk:Walk-v0", "ALE/Pong-v5"
        environment = re.sub(r"[/:]", "-", experiment.env)
        folder = make_folder(results, f"{prefix}{experiment.run}_{environment}")
    folder.experiment_file.write_text(to_yaml(experiment))
    return folder


def check_name(results: Path, name: str) -> None:
    """Raises UserError unless a new run can have this name."""
    if not NAME.fullmatch(name):
        raise UserError(f"--name {name}: may have letters, digits, '.', '-' and '_' only")
    if (path := results / RUNS / name).exists():
        raise _taken(name, path)


def _taken(name: str, path: Path) -> UserError:
    """Returns the error of a name that another run has."""
    return UserError(f"--name {name}: exists. Next: --resume {path}, or another name")


def make_folder(results: Path, name: str) -> RunFolder:
    """Makes the empty folder of a new run, named with the time."""
    name = f"{name}_{time.strftime('%Y-%m-%d_%H-%M-%S')}"
    path = results / RUNS / name
    attempt = 1
    while not _make(path):
        attempt += 1
        path = results / RUNS / f"{name}_{attempt}"
    return RunFolder(path)


def _make(path: Path) -> bool:
    """Makes a folder; returns whether this process made it, even if another one tries the same."""
    try:
        path.mkdir(parents=True)
    except FileExistsError:
        return False
    return True


def find_run_to_resume(results: Path, which: str) -> RunFolder:
    """Returns the run to resume: the newest one with a checkpoint, or the one at a path.

    Args:
        which: "latest", or a run's folder.

    Raises:
        UserError: There is nothing to resume.
    """
    if which != "latest":
        folder = RunFolder(Path(which))
        if not folder.checkpoints().newest_first():
            raise UserError(f"--resume {which}: no checkpoint in {folder.path}/checkpoints")
        return folder
    newest = newest_run(results)
    if newest is None:
        raise UserError(f"--resume: nothing to resume, no run in {results / RUNS} has a checkpoint")
    return newest


def newest_run(results: Path) -> RunFolder | None:
    """Returns the newest run that has a checkpoint."""

    def trained_at(run: RunFolder) -> float:
        # The end of an old run, which changes its folder, may reach MLflow today.
        trained = run.progress_file.exists()
        return (run.progress_file if trained else run.path).stat().st_mtime

    runs = sorted(map(RunFolder, (results / RUNS).glob("*")), key=trained_at, reverse=True)
    return next((run for run in runs if run.checkpoints().newest_first()), None)


def check_writable(results: Path) -> None:
    """Checks that files can be written below `results`; leaves nothing behind.

    Raises:
        UserError: They cannot.
        TemporaryError: They cannot now: the disk is full.
    """
    existing = next(p for p in (results, *results.absolute().parents) if p.exists())
    try:
        with tempfile.TemporaryDirectory(dir=existing):
            pass
    except OSError as error:
        reason = f"--results {results}: cannot be written ({error.strerror or error})"
        if may_pass(error):
            raise TemporaryError(reason) from None
        raise UserError(f"{reason}; give a folder that can") from None


def _rounded(value: float) -> float | int:
    """Returns a count as an integer, and any other value with six significant digits."""
    return int(value) if value.is_integer() else float(f"{value:.6g}")
