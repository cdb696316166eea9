"""The learning curve as a picture, from a run's progress.csv."""

from __future__ import annotations

import csv
from pathlib import Path


def draw_learning_curve(progress_file: Path, picture: Path, title: str, goal: float | None) -> None:
    """Draws the mean return over agent steps, with the best and worst of 100 episodes."""
    from matplotlib.figure import Figure

    with progress_file.open() as file:
        # A full disk may have cut the last row off.
        rows = [row for row in csv.DictReader(file) if None not in row.values()]
    steps = [float(row["env_steps"]) / 1e6 for row in rows]
    column = {
        name: [float(row[f"episode_return_{name}"]) for row in rows]
        for name in ("mean", "min", "max")
    }
    figure = Figure(figsize=(8, 4.5), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    axes.fill_between(steps, column["min"], column["max"], alpha=0.15, label="worst to best")
    axes.plot(steps, column["mean"], label="mean of the last 100 episodes")
    if goal is not None:
        axes.axhline(goal, color="gray", linestyle="--", linewidth=1, label=f"goal {goal:g}")
    minutes = float(rows[-1]["time_total_s"]) / 60 if rows else 0.0
    axes.set(
        title=f"{title}, {minutes:.1f} minutes of training",
        xlabel="million agent steps",
        ylabel="episode return",
    )
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    figure.savefig(picture)
