"""Reads an experiment from its layers: a file, the command line, the numbers of a stack."""

from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel

from payload.errors import nearest
from payload.experiment.merge import SECTIONS, Layer, Merged, merge
from payload.experiment.problems import FATAL, Problem, problems_of, refusal
from payload.experiment.settings import (
    DEFAULT_TIME_TOTAL_S,
    EPISODE_LEN_MEAN,
    EPISODE_RETURN_MEAN,
    EVALUATION_RETURN_MEAN,
    INFO_MEAN,
    SETTINGS,
    Algorithm,
    Experiment,
    Stop,
)
from payload.experiment.written_numbers import as_written

__all__ = ["Layer", "LoadedExperiment", "read_experiment"]


@dataclass(frozen=True)
class LoadedExperiment:
    """An experiment, and notes on how it was read."""

    experiment: Experiment
    notes: list[str]
    """A line for each name that was translated, ignored or added."""


def read_experiment(*layers: Layer | Path) -> LoadedExperiment:
    """Reads layers, later ones over earlier ones: `config` key by key, `stop` as a whole.

    Raises:
        UserError: A file cannot be read; an unknown key, a wrong type or value. It tells all keys.
    """
    merged = merge(*layers)
    if problems := left_out_of(merged):
        files = [layer for layer in layers if isinstance(layer, Path)]
        raise refusal(problems, files[0] if files else None, merged.notes)
    return LoadedExperiment(built(merged), merged.notes)


def left_out_of(merged: Merged) -> list[Problem]:
    """Removes what cannot be used from the values; returns it.

    Some rules look at several keys: they are checked once each key is right by itself.
    """
    problems = list(merged.problems)
    while wrong_values := _check(merged):
        problems += wrong_values
        fatal = any(problem.name in FATAL for problem in problems)
        if fatal or not all(merged.leave_out(each.section, each.name) for each in wrong_values):
            break
    return problems


def built(merged: Merged) -> Experiment:
    """Returns the experiment of values without problems."""
    sections = {
        name: model.model_validate(merged.values[name])
        for name, model in _models(merged.run).items()
    }
    return Experiment.model_validate({**merged.values, **sections}).searching(merged.search)


def _check(merged: Merged) -> list[Problem]:
    """Fills in what an experiment must have; returns what is wrong with its values."""
    values = merged.values
    if not values.get("stop"):
        values["stop"] = {"time_total_s": DEFAULT_TIME_TOTAL_S}
        merged.notes.append(f"stop is empty: time_total_s is {DEFAULT_TIME_TOTAL_S:g}")
    beside = as_written(Experiment, {k: v for k, v in values.items() if k not in SECTIONS})
    values |= beside
    problems = problems_of(Experiment, beside, "")
    if any(problem.name == "run" for problem in problems):
        return problems  # The algorithm decides which settings exist.
    for section, model in _models(merged.run).items():
        values[section] = as_written(model, values.get(section, {}))
        problems += problems_of(model, values[section], section, merged.run, merged.given_names)
    problems += [] if problems else _problems_of_search(merged)
    return problems or _problems_together(merged)


def _models(run: Algorithm) -> dict[str, type[BaseModel]]:
    return {"config": SETTINGS[run], "stop": Stop}


def _problems_of_search(merged: Merged) -> list[Problem]:
    """Returns what is wrong with the candidates of the search spaces."""
    settings = SETTINGS[merged.run]
    for name, space in as_written(settings, merged.search).items():
        merged.search[name] = space
        for candidate in space.candidates:
            given = {**merged.values["config"], name: candidate}
            if problems := problems_of(settings, given, "config", merged.run, merged.given_names):
                return problems
    return []


def _problems_together(merged: Merged) -> list[Problem]:
    """Returns what is wrong with sections that are right by themselves."""
    experiment = built(merged)
    goal, interval = experiment.stop.evaluation_return_mean, experiment.config.evaluation_interval
    for name in experiment.stop.info.keys() - set(experiment.config.info_metrics):
        key = f"{INFO_MEAN}{name}"
        text = f"stop.{key} is never reached without config.info_metrics: [{name}]"
        return [Problem(text, "stop", key)]
    own = [f"{INFO_MEAN}{name}" for name in experiment.config.info_metrics]
    metrics = [EPISODE_RETURN_MEAN, EVALUATION_RETURN_MEAN, EPISODE_LEN_MEAN, *own]
    if (metric := experiment.search_metric) not in metrics:
        text = f"metric: {metric}: must be one of {', '.join(metrics)}{nearest(metric, metrics)}"
        return [Problem(text, "", "metric")]
    if interval is not None:
        return []
    needed = "without evaluation; set config.evaluation_interval, the iterations between two"
    if goal is not None:
        text = f"stop.{EVALUATION_RETURN_MEAN}: {goal:g} is never reached {needed} evaluations"
        return [Problem(text, "stop", EVALUATION_RETURN_MEAN)]
    if metric == EVALUATION_RETURN_MEAN:
        return [Problem(f"metric: {metric}: is never known {needed} evaluations", "", "metric")]
    return []
