"""The display of a training run: one live panel, or plain lines in a pipe."""

import math
import time
from collections.abc import Callable, Iterable
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

from payload.experiment.settings import Experiment, Stop
from payload.run.progress import Limit, Progress, limits_of
from payload.tracking.report import Report

PLAIN_LINE_EVERY_S = 10.0
Say = Callable[[str], None]
"""Shows the user a line, as `View.say` does."""


@dataclass(frozen=True)
class Outlook:
    """How far the run is, and when it ends at the latest. No learning curve is extrapolated."""

    fraction: float
    """Share of the way to the goal, or of the nearest limit before a goal is measured."""
    latest_end_s: float
    """Seconds until the nearest limit, at the speed so far; NaN without a limit or a speed."""
    text: str


def outlook(stop: Stop, report: Report, progress: Progress) -> Outlook | None:
    """Returns how far a run is after an iteration; None if it has neither goal nor limit."""
    seconds = report.time_total_s
    limits = limits_of(stop, report)
    limit = min(limits, key=lambda limit: limit.remaining_s(seconds), default=None)
    goals = [
        ("return", report.return_mean, progress.first_return, stop.episode_return_mean),
        (
            "evaluation's return",
            progress.last_evaluation,
            progress.first_evaluation,
            stop.evaluation_return_mean,
        ),
    ]
    for name, value, first, goal in goals:
        # A mean of fewer than 100 episodes has no first_return yet.
        if goal is not None and value is not None and first is not None and math.isfinite(first):
            fraction = (value - first) / (goal - first) if goal > first else 1.0
            fraction = min(1.0, max(0.0, fraction))
            percent = 100 if value >= goal else min(99, math.floor(100 * fraction))
            # Rounded down: 17.96 is not a goal of 18.
            text = f"{name} {math.floor(10 * value) / 10:.1f}, goal {goal:g} ({percent} %)"
            if limit is None:
                return Outlook(fraction, math.nan, text)
            text += f"; {_end_in_words(limit, seconds)} at the latest"
            return Outlook(fraction, limit.remaining_s(seconds), text)
    if limit is None:
        return None
    text = f"{math.floor(100 * limit.fraction)} % of {limit.name}; {_end_in_words(limit, seconds)}"
    if stop.episode_return_mean is not None or stop.evaluation_return_mean is not None:
        text += " at the latest"
    return Outlook(limit.fraction, limit.remaining_s(seconds), text)


def _end_in_words(limit: Limit, seconds: float) -> str:
    if math.isinf(remaining_s := limit.remaining_s(seconds)):
        return "its end is not known yet"
    return f"ends in {'' if limit.name == 'time' else 'about '}{duration(remaining_s)}"


class View:
    """Shows a run on a terminal as a live panel, elsewhere as lines."""

    def __init__(self, output: TextIO, experiment: Experiment) -> None:
        self.console = Console(file=output, soft_wrap=True)
        self.experiment = experiment
        self.where = "MLflow run: not yet started"
        """Where the MLflow run is, or why it waits."""
        self.outlook: Outlook | None = None
        """As of the last report."""
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
        self.outlook = outlook(self.experiment.stop, report, progress)
        if self._live is not None:
            self._live.update(self._panel(report, progress, total_env_runners))
        elif time.monotonic() - self._last_line >= PLAIN_LINE_EVERY_S:
            self._last_line = time.monotonic()
            self.say(_plain_line(report, progress, self.outlook, total_env_runners))

    def stop(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _panel(self, report: Report, progress: Progress, total: int) -> Panel:
        table = Table.grid(padding=(0, 2))
        for name, value in _fields(report, progress, total):
            table.add_row(f"[dim]{name}[/dim]", value)
        parts: list[object] = [table]
        if self.outlook is not None:
            bar = Table.grid()
            bar.add_row(ProgressBar(1.0, self.outlook.fraction, width=74))
            bar.add_row(escape(self.outlook.text))
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
    for name, mean in report.info.items():
        yield name, "-" if math.isnan(mean) else f"{mean:.4g}"
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


def _plain_line(report: Report, progress: Progress, ahead: Outlook | None, total: int) -> str:
    best = "-" if math.isinf(progress.best_return) else f"{progress.best_return:.2f}"
    line = (
        f"{clock(report.time_total_s)}  return {number(report.return_mean)} (best {best})  "
        f"steps {report.env_steps:,} ({report.sampled_per_s:,.0f}/s)  "
        f"env runners {report.env_runners}/{total}"
    )
    line += "".join(f"  {name} {mean:.4g}" for name, mean in report.info.items())
    if progress.last_evaluation is not None:
        line += f"  evaluation {progress.last_evaluation:.2f} (best {progress.best_evaluation:.2f})"
    return line if ahead is None else f"{line}  {ahead.text}"


def number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.2f}"


def clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def duration(seconds: float) -> str:
    """Returns a remaining time, rounded up: 30 s, 57 min, 2 h 05 min."""
    if seconds <= 90:
        return f"{math.ceil(seconds)} s"
    minutes = math.ceil(seconds / 60)
    return f"{minutes} min" if minutes <= 90 else f"{minutes // 60} h {minutes % 60:02d} min"
