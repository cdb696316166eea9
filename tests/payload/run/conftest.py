"""Algorithms of runs, built in this process with the driver's own env runner."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from payload.experiment.derived_defaults import with_defaults
from payload.experiment.read import read_experiment
from payload.experiment.settings import Experiment
from payload.impala.schedule import UpdateSettings
from payload.run.checkpoints import Checkpoint
from payload.run.panel import View
from payload.run.reporting import TrainOptions
from payload.run.run_folder import RunFolder
from payload.run.train import Training
from tests.local_ray import local_ray

Build = Callable[..., Any]


def tiny(steps: int = 1000, **config: Any) -> Experiment:
    """Returns an experiment whose env runner is the driver's own."""
    sizes = {"num_env_runners": 0, "num_envs_per_env_runner": 2, "rollout_fragment_length": 4}
    stop = {"num_env_steps_sampled_lifetime": steps}
    return read_experiment({"config": {**sizes, **config}, "stop": stop}).experiment


@pytest.fixture
def terminal() -> io.StringIO:
    """The output that the user sees."""
    return io.StringIO()


@pytest.fixture
def build(tmp_path: Path, terminal: io.StringIO) -> Iterator[Build]:
    """Builds the algorithm of a run that resumes from some checkpoints."""
    with building(tmp_path, terminal) as build:
        yield build


@contextmanager
def building(folder: Path, terminal: io.StringIO) -> Iterator[Build]:
    """Yields a function that builds algorithms in a run's folder, and stops them."""
    local_ray()
    algorithms: list[Any] = []

    def build(experiment: Experiment, *resume_from: Checkpoint) -> Any:
        training = Training(
            experiment,
            with_defaults(experiment, atari=True),
            RunFolder(folder),
            TrainOptions(results=folder),
            View(terminal, experiment),
        )
        algorithms.append(training.build(list(resume_from)))
        return algorithms[-1]

    yield build
    for algorithm in algorithms:
        algorithm.stop()


def of_learners(algorithm: Any) -> list[UpdateSettings]:
    """Returns each learner's update settings."""
    told = algorithm.learner_group.foreach_learner(lambda learner: learner.update_settings)
    return [result.get() for result in told]
