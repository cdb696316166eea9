"""What a trial has reached, and which setting is the best."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, Literal

from payload.experiment.settings import EPISODE_RETURN_MEAN
from payload.run.run_folder import RunFolder
from payload.run.run_status import RunStatus, State
from payload.search.search_folder import SearchFolder, status_file
from payload.search.search_plan import Planned
from payload.tracking.metrics import STEPS, TIME


@dataclass(frozen=True)
class Record:
    """A trial and what it has reached."""

    trial: Planned
    state: State | Literal["WAITING"] = "WAITING"
    reason: str = ""
    """Why it ended."""
    env_steps: int = 0
    return_mean: float = math.nan
    """Mean return of the last 100 episodes, or of all while there are fewer; NaN without any."""
    time_total_s: float = 0.0


@dataclass(frozen=True)
class Ranked:
    """A setting with its trials, one for each seed."""

    values: dict[str, Any]
    records: list[Record]

    @property
    def score(self) -> float:
        """Mean over the seeds of the last mean return; -inf where one failed or has no episode.

        A trial that still trains, or waits, counts once it has a return.
        """
        returns = [
            -math.inf if record.state == "FAILED" else record.return_mean
            for record in self.records
            if not (record.state in ("WAITING", "STARTING") and math.isnan(record.return_mean))
        ]
        if not returns or any(math.isnan(value) for value in returns):
            return -math.inf
        return fmean(returns)


def ranking(records: Iterable[Record]) -> list[Ranked]:
    """Returns the settings, the best one first."""
    settings: list[Ranked] = []
    for record in records:
        same = next((s for s in settings if s.values == record.trial.values), None)
        if same is None:
            settings.append(Ranked(record.trial.values, [record]))
        else:
            same.records.append(record)
    return sorted(settings, key=lambda setting: setting.score, reverse=True)


def read_record(folder: SearchFolder, trial: Planned) -> Record:
    """Returns what a trial's folder says of it."""
    own = folder.trial(trial.name)
    record = Record(trial)
    if status_file(own).exists():
        status = RunStatus.read(status_file(own))
        record = replace(record, state=status.state, reason=status.reason)
    rows = list(progress_rows(own))
    if not rows:
        return record
    return replace(
        record,
        env_steps=int(rows[-1][STEPS]),
        return_mean=rows[-1][EPISODE_RETURN_MEAN],
        time_total_s=rows[-1][TIME],
    )


def progress_rows(trial: RunFolder) -> Iterator[dict[str, float]]:
    """Yields what a trial reported: steps, seconds and mean return of each iteration."""
    if not trial.progress_file.exists():
        return
    with trial.progress_file.open(newline="") as file:
        for row in csv.DictReader(file):
            if None not in row.values():  # A crash may have cut the last row off.
                yield {name: float(row[name]) for name in (STEPS, TIME, EPISODE_RETURN_MEAN)}
