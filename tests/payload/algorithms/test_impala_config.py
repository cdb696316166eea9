"""Volley's learners in RLlib's config of IMPALA and APPO."""

from __future__ import annotations

import itertools

import pytest
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig

from payload.algorithms.algorithm_config import algorithm_config
from payload.environments.atari import game_of
from payload.experiment.derived_defaults import with_defaults
from payload.experiment.read import read_experiment
from payload.impala.learner_errors import ThreadWatch


@pytest.fixture(
    params=itertools.product(["IMPALA", "APPO"], ["PongNoFrameskip-v4", "CartPole-v1"]),
    ids=" on ".join,
)
def config(request: pytest.FixtureRequest) -> AlgorithmConfig:
    run, env = request.param
    experiment = read_experiment({"run": run, "env": env}).experiment
    atari = game_of(experiment) is not None
    return algorithm_config(experiment, with_defaults(experiment, atari, num_env_runners=2))


def test_no_learner_outlives_its_threads(config: AlgorithmConfig) -> None:
    assert issubclass(config.learner_class, ThreadWatch)
