"""Ranks the settings of a search by the results of their trials, as a picture and as a table."""

import csv
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from payload.atomic_file import replace_text
from payload.run.run_status import RunStatus, State
from payload.search.search_folder import SearchFolder, status_file
from payload.search.search_plan import Planned, in_words
from payload.tracking.metrics import STEPS, TIME, curve

NAMED = 10
"""Settings that have a color of their own; the others are gray."""


@dataclass(frozen=True)
class Record:
    """A trial and its result so far."""

    trial: Planned
    state: State | Literal["WAITING"] = "WAITING"
    reason: str = ""
    """Why it ended."""
    env_steps: int = 0
    return_mean: float = math.nan
    """The search's metric: by default the mean return of the last 100 episodes, or of all while
    there are fewer; NaN without any."""
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


def read_record(folder: SearchFolder, trial: Planned, metric: str) -> Record:
    """Returns a trial's record, read from its folder."""
    own = folder.trial(trial.name)
    record = Record(trial)
    if status_file(own).exists():
        status = RunStatus.read(status_file(own))
        record = replace(record, state=status.state, reason=status.reason)
    rows = list(own.progress_rows())
    if not rows:
        return record
    _, values = curve(rows, metric)
    return replace(
        record,
        env_steps=int(rows[-1][STEPS]),
        return_mean=values[-1] if values else math.nan,
        time_total_s=rows[-1][TIME],
    )


def draw_trials(folder: SearchFolder, settings: Sequence[Ranked], title: str, metric: str) -> None:
    """Draws every trial's mean return over environment steps, in the color of its setting.

    Args:
        settings: The best one first.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter

    figure = Figure(figsize=(10, 5.5), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    for rank, setting in enumerate(settings):
        label: str | None = f"{rank + 1}. {in_words(setting.values)}" if rank < NAMED else None
        for record in setting.records:
            steps, returns = curve(folder.trial(record.trial.name).progress_rows(), metric)
            color = f"C{rank}" if rank < NAMED else "lightgray"
            (line,) = axes.plot(
                steps, returns, color=color, label=label, linewidth=1.5 if rank else 2.5
            )
            # Above the curves of worse settings.
            line.set_zorder(3 + 1 / (1 + rank))
            axes.plot(steps[-1:], returns[-1:], "o", color=color, markersize=4)
            label = None
    axes.set(title=title, xlabel="environment steps", ylabel=metric)
    axes.xaxis.set_major_formatter(EngFormatter())
    axes.grid(alpha=0.3)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="upper left", fontsize="small")
    figure.savefig(folder.picture)


def write_table(path: Path, settings: Sequence[Ranked], metric: str) -> None:
    """Writes a line for each trial, those of the best setting first."""
    text = io.StringIO(newline="")
    keys = list(settings[0].values)
    writer = csv.writer(text)
    ends = (STEPS, metric, TIME, "state", "reason")
    writer.writerow(["rank", "trial", *keys, "seed", *ends])
    for rank, setting in enumerate(settings, 1):
        for record in setting.records:
            values = [setting.values[key] for key in keys]
            reached = [record.env_steps, record.return_mean, record.time_total_s]
            row = [rank, record.trial.name, *values, record.trial.seed, *reached]
            writer.writerow([*row, record.state, record.reason])
    replace_text(path, text.getvalue())
