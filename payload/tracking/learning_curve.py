"""The learning curve as a picture, from a run's progress.csv."""

import csv
from pathlib import Path

from payload.experiment.settings import EPISODE_RETURN_MEAN
from payload.tracking.metrics import EPISODE_RETURN_MAX, EPISODE_RETURN_MIN, STEPS, TIME


def draw_learning_curve(progress_file: Path, picture: Path, title: str, goal: float | None) -> None:
    """Draws the mean return over environment steps, with the best and worst of 100 episodes."""
    from matplotlib.figure import Figure

    with progress_file.open() as file:
        # A full disk may have cut the last row off.
        rows = [row for row in csv.DictReader(file) if None not in row.values()]
    steps = [float(row[STEPS]) / 1e6 for row in rows]
    column = {
        name: [float(row[name]) for row in rows]
        for name in (EPISODE_RETURN_MEAN, EPISODE_RETURN_MIN, EPISODE_RETURN_MAX)
    }
    figure = Figure(figsize=(8, 4.5), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    axes.fill_between(
        steps,
        column[EPISODE_RETURN_MIN],
        column[EPISODE_RETURN_MAX],
        alpha=0.15,
        label="worst to best",
    )
    axes.plot(steps, column[EPISODE_RETURN_MEAN], label="mean of the last 100 episodes")
    if goal is not None:
        axes.axhline(goal, color="gray", linestyle="--", linewidth=1, label=f"goal {goal:g}")
    minutes = float(rows[-1][TIME]) / 60 if rows else 0.0
    axes.set(
        title=f"{title}, {minutes:.1f} minutes of training",
        xlabel="million environment steps",
        ylabel="episode return",
    )
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    figure.savefig(picture)
