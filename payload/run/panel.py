"""What a person sees while it trains: one live panel, or plain lines in a pipe."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.panel import Panel
from rich.progress import Progress as Waiting
from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress_bar import ProgressBar
from rich.table import Table

from payload.experiment.settings import Experiment
from payload.run.progress import Progress
from payload.tracking.report import Report

PLAIN_LINE_EVERY_S = 10.0


@dataclass(frozen=True)
class Estimate:
    """How far the run is on its way to the criterion that will stop it first."""

    fraction: float
    remaining_s: float
    """NaN while unknown."""
    criterion: str


def estimate(experiment: Experiment, progress: Progress, history: list[Report]) -> Estimate | None:
    """Returns the criterion that is closest, or None if the run has no end.

    Time and steps are extrapolated from the throughput, the return from its rise over the last
    quarter of the run. That is a rough estimate: learning curves are not straight lines.
    """
    if not history:
        return None
    now, stop = history[-1], experiment.stop
    found = []
    limits: list[tuple[str, float | None, float]] = [
        ("time", stop.time_total_s, now.time_total_s),
        ("steps", stop.num_env_steps_sampled_lifetime, now.env_steps),
        ("iterations", stop.training_iteration, now.iteration),
    ]
    for name, limit, value in limits:
        if limit is not None:
            rate = value / now.time_total_s if now.time_total_s else 0.0
            remaining = max(0.0, limit - value) / rate if rate else math.nan
            found.append(Estimate(min(1.0, value / limit), remaining, name))
    if stop.episode_return_mean is not None and progress.has_full_mean:
        found.append(_estimate_return(stop.episode_return_mean, history))
    if stop.evaluation_return_mean is not None and progress.first_evaluation is not None:
        span = stop.evaluation_return_mean - progress.first_evaluation
        rise = progress.best_evaluation - progress.first_evaluation
        fraction = min(1.0, max(0.0, rise / span)) if span > 0 else 1.0
        found.append(Estimate(fraction, math.nan, "evaluation's return"))
    known = [e for e in found if math.isfinite(e.remaining_s)]
    return min(known, key=lambda e: e.remaining_s) if known else (found[0] if found else None)


def _estimate_return(goal: float, history: list[Report]) -> Estimate:
    now = history[-1]
    first = next((r for r in history if math.isfinite(r.return_mean)), now)
    span = goal - first.return_mean
    fraction = min(1.0, max(0.0, (now.return_mean - first.return_mean) / span)) if span else 1.0
    earlier = next((r for r in history if r.time_total_s >= 0.75 * now.time_total_s), now)
    seconds = now.time_total_s - earlier.time_total_s
    rise = now.return_mean - earlier.return_mean
    remaining = math.nan
    if seconds > 0 and rise > 0:
        remaining = max(0.0, goal - now.return_mean) * seconds / rise
    return Estimate(fraction, remaining, "return")


class View:
    """Shows a run on a terminal as a live panel, elsewhere as lines."""

    def __init__(self, output: TextIO, experiment: Experiment) -> None:
        self.console = Console(file=output, soft_wrap=True)
        self.experiment = experiment
        self.where = "MLflow run: not yet started"
        """Where the MLflow run is, or why it waits."""
        self.ahead: Estimate | None = None
        """As of the last report."""
        self._history: list[Report] = []
        self._last_line = -math.inf
        self._live: Live | None = None

    def wait_for(self, what: str) -> None:
        """Shows what the run waits for, and for how long, until the next report."""
        if not self.console.is_terminal:
            self.say(f"{what} ...")
            return
        if self._live is None:
            self._live = Live(console=self.console, refresh_per_second=4)
            self._live.start()
        waiting = Waiting(SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        waiting.add_task(what, total=None)
        self._live.update(waiting)

    def say(self, line: str) -> None:
        """Prints a line above the panel."""
        self.console.print(line, highlight=False, markup=False)

    def update(self, report: Report, progress: Progress, total_env_runners: int) -> None:
        self._history.append(report)
        self.ahead = ahead = estimate(self.experiment, progress, self._history)
        if self._live is not None:
            self._live.update(self._panel(report, progress, ahead, total_env_runners))
        elif time.monotonic() - self._last_line >= PLAIN_LINE_EVERY_S:
            self._last_line = time.monotonic()
            self.say(_plain_line(report, progress, ahead, total_env_runners))

    def stop(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _panel(
        self, report: Report, progress: Progress, ahead: Estimate | None, total: int
    ) -> Panel:
        table = Table.grid(padding=(0, 2))
        for name, value in _fields(report, progress, total):
            table.add_row(f"[dim]{name}[/dim]", value)
        parts: list[object] = [table]
        if ahead is not None:
            bar = Table.grid(padding=(0, 2))
            bar.add_row(
                "[dim]progress[/dim]", ProgressBar(1.0, ahead.fraction, width=36), _words(ahead)
            )
            parts.append(bar)
        parts.append(f"[dim]{escape(self.where)}[/dim]")
        title = f"{self.experiment.run} on {self.experiment.env}"
        return Panel(Group(*parts), title=title, title_align="left", width=78)  # type: ignore[arg-type]


def _fields(report: Report, progress: Progress, total: int) -> Iterable[tuple[str, str]]:
    best = "-" if math.isinf(progress.best_return) else f"{progress.best_return:.2f}"
    yield (
        "return now",
        f"{number(report.return_mean)}  (best {best}, {report.episodes:,} episodes)",
    )
    if progress.last_evaluation is not None:
        yield (
            "evaluation",
            f"{progress.last_evaluation:.2f}  (best {progress.best_evaluation:.2f})",
        )
    yield (
        "environment steps",
        f"{report.env_steps:,}  ({report.sampled_per_s:,.0f}/s sampled, "
        + (f"{report.trained_per_s:,.0f}/s trained)"),
    )
    yield "env runners", f"{report.env_runners} of {total} alive"
    yield "time", f"{clock(report.time_total_s)}  (iteration {report.iteration})"


def _plain_line(report: Report, progress: Progress, ahead: Estimate | None, total: int) -> str:
    best = "-" if math.isinf(progress.best_return) else f"{progress.best_return:.2f}"
    line = (
        f"{clock(report.time_total_s)}  return {number(report.return_mean)} (best {best})  "
        f"steps {report.env_steps:,} ({report.sampled_per_s:,.0f}/s)  "
        f"env runners {report.env_runners}/{total}"
    )
    if progress.last_evaluation is not None:
        line += f"  evaluation {progress.last_evaluation:.2f} (best {progress.best_evaluation:.2f})"
    return line if ahead is None else f"{line}  {_words(ahead)}"


def _words(ahead: Estimate) -> str:
    left = f", about {clock(ahead.remaining_s)} left" if math.isfinite(ahead.remaining_s) else ""
    return f"{100 * ahead.fraction:.0f} % of {ahead.criterion}{left}"


def number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.2f}"


def clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
