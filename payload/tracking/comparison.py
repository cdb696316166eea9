"""Learning curves of several trainings in one picture, and what they have reached in a table.

Trainings that differ in their seed alone are one line with a band, see seed_statistics.py.
"""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from payload.atomic_file import replace_text
from payload.tracking.metrics import STEPS, curve
from payload.tracking.seed_statistics import CONFIDENCE, SeedStatistics, seed_statistics


@dataclass(frozen=True)
class Curves:
    """One setting, trained with one or several seeds."""

    label: str
    rows: list[list[dict[str, float]]]
    """The rows of each seed's progress.csv."""

    def statistics(self, metric: str) -> SeedStatistics | None:
        """Returns the statistics of a metric; None if a seed has no value of it."""
        curves = []
        for of_seed in self.rows:
            steps, values = curve(of_seed, metric)
            if not steps:
                return None
            curves.append((np.array(steps), np.array(values)))
        return seed_statistics(curves) if curves else None


def draw(settings: Sequence[Curves], metric: str, picture: Path, title: str) -> None:
    """Draws each setting's interquartile mean over environment steps, with its band."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter

    figure = Figure(figsize=(10, 5.5), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    for number, setting in enumerate(settings):
        seeds, color = len(setting.rows), f"C{number}"
        for of_seed in setting.rows if seeds > 1 else []:
            axes.plot(*curve(of_seed, metric), color=color, alpha=0.25, linewidth=0.7)
        if (reached := setting.statistics(metric)) is None:
            continue
        label = setting.label if seeds == 1 else f"{setting.label}, {seeds} seeds"
        axes.plot(reached.env_steps, reached.iqm, color=color, label=label, linewidth=2)
        axes.fill_between(reached.env_steps, reached.low, reached.high, color=color, alpha=0.25)
    band = f"interquartile mean of the seeds, {CONFIDENCE:.0%} bootstrap interval"
    several = any(len(setting.rows) > 1 for setting in settings)
    axes.set(title=f"{title}\n{band}" if several else title)
    axes.set(xlabel="environment steps", ylabel=metric)
    axes.xaxis.set_major_formatter(EngFormatter())
    axes.grid(alpha=0.3)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="best", fontsize="small")
    figure.savefig(picture)


def write_table(settings: Sequence[Curves], metric: str, file: Path) -> None:
    """Writes a line for each setting and each of the environment steps compared."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(["setting", "seeds", STEPS, "mean", "iqm", "iqm_low", "iqm_high"])
    for setting in settings:
        if (reached := setting.statistics(metric)) is None:
            continue
        columns = (reached.env_steps, reached.mean, reached.iqm, reached.low, reached.high)
        for steps, *values in zip(*columns, strict=True):
            row = [setting.label, len(setting.rows), round(steps)]
            writer.writerow([*row, *(f"{value:.6g}" for value in values)])
    replace_text(file, text.getvalue())


def in_words(setting: Curves, metric: str) -> str:
    """Returns what a setting has reached at the last environment step of all its seeds."""
    reached = setting.statistics(metric)
    if reached is None:
        return f"{setting.label}: no {metric} yet"
    at = f"at {reached.env_steps[-1]:,.0f} environment steps"
    if len(setting.rows) == 1:
        return f"{setting.label}: {reached.mean[-1]:.2f} {at}"
    return (
        f"{setting.label}, {len(setting.rows)} seeds: mean {reached.mean[-1]:.2f}, interquartile "
        f"mean {reached.iqm[-1]:.2f} ({CONFIDENCE:.0%} interval {reached.low[-1]:.2f} to "
        f"{reached.high[-1]:.2f}) {at}"
    )
