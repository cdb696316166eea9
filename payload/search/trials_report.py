"""All trials of a search as a picture and as a table in a file."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from payload.atomic_file import replace_text
from payload.experiment.settings import EPISODE_RETURN_MEAN
from payload.search.ranking import Ranked, progress_rows
from payload.search.search_folder import SearchFolder
from payload.search.search_plan import in_words
from payload.tracking.metrics import STEPS, TIME

NAMED = 10
"""Settings that have a color of their own; the others are gray."""


def draw_trials(folder: SearchFolder, settings: Sequence[Ranked], title: str) -> None:
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
            rows = list(progress_rows(folder.trial(record.trial.name)))
            steps = [row[STEPS] for row in rows]
            returns = [row[EPISODE_RETURN_MEAN] for row in rows]
            color = f"C{rank}" if rank < NAMED else "lightgray"
            (line,) = axes.plot(
                steps, returns, color=color, label=label, linewidth=1.5 if rank else 2.5
            )
            # Above the curves of worse settings.
            line.set_zorder(3 + 1 / (1 + rank))
            axes.plot(steps[-1:], returns[-1:], "o", color=color, markersize=4)
            label = None
    axes.set(title=title, xlabel="environment steps", ylabel="mean episode return")
    axes.xaxis.set_major_formatter(EngFormatter())
    axes.grid(alpha=0.3)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="upper left", fontsize="small")
    figure.savefig(folder.picture)


def write_table(path: Path, settings: Sequence[Ranked]) -> None:
    """Writes a line for each trial, those of the best setting first."""
    text = io.StringIO(newline="")
    keys = list(settings[0].values)
    writer = csv.writer(text)
    ends = (STEPS, EPISODE_RETURN_MEAN, TIME, "state", "reason")
    writer.writerow(["rank", "trial", *keys, "seed", *ends])
    for rank, setting in enumerate(settings, 1):
        for record in setting.records:
            values = [setting.values[key] for key in keys]
            reached = [record.env_steps, record.return_mean, record.time_total_s]
            row = [rank, record.trial.name, *values, record.trial.seed, *reached]
            writer.writerow([*row, record.state, record.reason])
    replace_text(path, text.getvalue())
