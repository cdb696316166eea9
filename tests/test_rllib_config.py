"""What RLlib is asked for: a config that it accepts, for each algorithm on either path."""

from __future__ import annotations

import pytest

from payload.defaults import resolve_settings
from payload.experiment import parse_experiment
from payload.rllib_config import algorithm_config


@pytest.mark.parametrize("run", ["IMPALA", "APPO"])
@pytest.mark.parametrize("env", ["PongNoFrameskip-v4", "CartPole-v1"])
def test_rllib_accepts_the_config(run: str, env: str) -> None:
    experiment = parse_experiment({"run": run, "env": env}).experiment
    algorithm_config(experiment, resolve_settings(experiment, num_cpus=2)).validate()
