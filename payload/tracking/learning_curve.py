"""The learning curve as a picture, from a run's progress.csv."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from payload.experiment.settings import EPISODE_RETURN_MEAN
from payload.tracking.metrics import EPISODE_RETURN_MAX, EPISODE_RETURN_MIN, STEPS, TIME, read_rows


def draw_learning_curve(progress_file: Path, picture: Path, title: str, goal: float | None) -> None:
    """Draws the mean return over environment steps, with the best and worst of 100 episodes."""
    with progress_file.open(newline="") as file:
        rows = list(read_rows(file))
    learning_curve(rows, title, goal).savefig(picture)


def learning_curve(rows: Sequence[Mapping[str, float]], title: str, goal: float | None) -> Any:
    """Returns the curve of the rows of a progress.csv as a matplotlib Figure."""
    from matplotlib.figure import Figure

    steps = [row[STEPS] / 1e6 for row in rows]
    column = {
        name: [row[name] for row in rows]
        for name in (EPISODE_RETURN_MEAN, EPISODE_RETURN_MIN, EPISODE_RETURN_MAX)
    }
    figure = Figure(figsize=(8, 4.5), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    axes.plot(steps, column[EPISODE_RETURN_MEAN], label="mean of the last 100 episodes")
    # Lines: a band would look like an interval of confidence, which several seeds have.
    for name, label in ((EPISODE_RETURN_MIN, "best and worst of them"), (EPISODE_RETURN_MAX, None)):
        axes.plot(steps, column[name], color="C0", linestyle=":", linewidth=0.8, label=label)
    if goal is not None:
        axes.axhline(goal, color="gray", linestyle="--", linewidth=1, label=f"goal {goal:g}")
    minutes = rows[-1][TIME] / 60 if rows else 0.0
    axes.set(
        title=f"{title}, {minutes:.1f} minutes of training",
        xlabel="million environment steps",
        ylabel="episode return",
    )
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    return figure
