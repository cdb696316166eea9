"""`volley plot`: the learning curves of runs, searches and several seeds in one picture."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from payload.errors import UserError, nearest

if TYPE_CHECKING:
    from payload.experiment.settings import Experiment
    from payload.run.run_folder import RunFolder

PICTURES = (".png", ".svg", ".pdf")


def plot(options: argparse.Namespace) -> int:
    """Draws the picture and writes its table; returns the exit code.

    Raises:
        UserError: A folder has no progress, or the metric is unknown.
    """
    from payload.experiment.settings import EPISODE_RETURN_MEAN, INFO_MEAN
    from payload.run.run_folder import newest_run
    from payload.tracking.comparison import draw, in_words, write_table
    from payload.tracking.metrics import METRICS

    names = [metric.name for metric in METRICS]
    metric = options.metric or EPISODE_RETURN_MEAN
    if metric not in names and not metric.startswith(INFO_MEAN):
        raise UserError(
            f"--metric {metric}: is not a column of progress.csv{nearest(metric, names)}"
        )
    if options.output.suffix not in PICTURES:
        raise UserError(f"--output {options.output}: must end in {', '.join(PICTURES)}")
    if not options.output.absolute().parent.is_dir():
        raise UserError(f"--output {options.output}: the folder does not exist")
    newest = newest_run(options.results)
    paths = options.runs or ([newest.path] if newest is not None else [])
    if not paths:
        raise UserError(f"--results {options.results}: no run there. Next: volley train")
    settings = _grouped([run for path in paths for run in _runs_in(path)])
    title = ", ".join(dict.fromkeys(f"{e.run} on {e.env}" for e, _ in settings))
    curves = [curve for _, curve in settings]
    draw(curves, metric, options.output, title)
    table = options.output.with_suffix(".csv")
    write_table(curves, metric, table)
    for curve in curves:
        print(in_words(curve, metric))
    print(f"{options.output}, {table}")
    return 0


def _runs_in(path: Path) -> Iterator[RunFolder]:
    """Yields the run in a folder, or the runs of a search or of several seeds in it."""
    from payload.run.run_folder import RunFolder

    own = RunFolder(path)
    inside = [RunFolder(file.parent) for file in sorted(path.glob("*/progress.csv"))]
    runs = [run for run in (own, *inside) if any(run.progress_rows())]
    if not runs:
        raise UserError(f"{path}: has no run with a progress.csv")
    yield from runs


def _grouped(runs: list[RunFolder]) -> list[tuple[Experiment, Any]]:
    """Returns settings in the order of their first run, with all of their seeds."""
    from payload.experiment.read import read_experiment
    from payload.experiment.resume import resume_key
    from payload.tracking.comparison import Curves

    groups: dict[str, list[tuple[Experiment, RunFolder]]] = {}
    for run in runs:
        experiment = read_experiment(run.experiment_file).experiment
        without_seed = experiment.config.model_copy(update={"seed": None})
        key = resume_key(experiment.model_copy(update={"config": without_seed}))
        groups.setdefault(key, []).append((experiment, run))
    labels = _labels([group[0][0] for group in groups.values()])
    return [
        (group[0][0], Curves(label, [list(run.progress_rows()) for _, run in group]))
        for label, group in zip(labels, groups.values(), strict=True)
    ]


def _labels(settings: list[Experiment]) -> list[str]:
    """Returns what each setting has that the others have not; of a single one its name."""
    if len(settings) == 1:
        return [f"{settings[0].run} on {settings[0].env}"]
    values = [{"run": e.run, "env": e.env, **e.config.model_dump(mode="json")} for e in settings]
    keys = dict.fromkeys(key for own in values for key in own if key != "seed")
    differ = [key for key in keys if len({repr(own.get(key)) for own in values}) > 1]
    return [" ".join(f"{key}={_in_words(own.get(key))}" for key in differ) for own in values]


def _in_words(value: Any) -> str:
    return "default" if value is None else str(value)
