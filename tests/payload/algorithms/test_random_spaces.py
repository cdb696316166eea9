"""Environments of any spaces get actions of theirs from RLlib's networks and connectors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gymnasium
import pytest
from gymnasium import spaces
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from payload.algorithms.algorithm_config import algorithm_config
from payload.environments.gymnasium_env_runner import GymnasiumEnvRunner
from payload.environments.policy_action import PolicyActions
from payload.environments.policy_observation import PolicyObservations
from payload.errors import UserError
from payload.experiment.derived_defaults import with_defaults
from payload.experiment.file import to_yaml
from payload.experiment.read import read_experiment
from payload.experiment.settings import Experiment
from payload.run.checkpoints import Checkpoint
from payload.run.evaluate import evaluate
from tests.payload.random_spaces import numeric_spaces

pytestmark = pytest.mark.slow

ENV = "RandomSpaces-v0"


class RandomSpaces(gymnasium.Env[Any, Any]):
    """Has the spaces that the test gives it, and checks its actions."""

    declared: tuple[spaces.Space[Any], spaces.Space[Any]]
    """Its observations and actions."""
    received = 0

    def __init__(self, **_: Any) -> None:
        self.observation_space, self.action_space = RandomSpaces.declared

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert action in self.action_space, action
        RandomSpaces.received += 1
        return self.observation_space.sample(), 0.0, bool(self.np_random.random() < 0.3), False, {}


@pytest.fixture(scope="module", autouse=True)
def registered() -> Iterator[None]:
    gymnasium.register(ENV, RandomSpaces, disable_env_checker=True)
    yield
    del gymnasium.registry[ENV]


@dataclass(frozen=True)
class Untrained:
    """An algorithm whose network nobody has trained."""

    experiment: Experiment
    runner: GymnasiumEnvRunner

    @classmethod
    def of(cls, run: str, **config: Any) -> Untrained:
        config |= {"num_envs_per_env_runner": 2, "fcnet_hiddens": [8]}
        experiment = read_experiment({"run": run, "env": ENV, "config": config}).experiment
        filled = with_defaults(experiment, atari=False, num_env_runners=0)
        runner = GymnasiumEnvRunner(config=algorithm_config(experiment, filled), worker_index=0)
        runner.make_env()
        runner.make_module()
        return cls(experiment, runner)

    def checkpoint(self, folder: Path) -> Checkpoint:
        checkpoint = Checkpoint(folder)
        self.runner.module.save_to_path(checkpoint.module)
        checkpoint.experiment_file.write_text(to_yaml(self.experiment))
        return checkpoint


def runs_for(seen: spaces.Space[Any]) -> list[str]:
    """The algorithms that act in a policy's space."""
    if isinstance(seen, spaces.Discrete):
        return ["PPO", "IMPALA", "APPO", "DQN", "SAC"]
    bounded = isinstance(seen, spaces.Box) and seen.is_bounded()
    return ["PPO", "IMPALA", "APPO", *["SAC"] * bounded]


# An example takes a tenth of a second: a failing one is shown as it is.
@settings(
    max_examples=25,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)
@given(numeric_spaces(dimensions=4), numeric_spaces(), st.data())
def test_every_action_of_a_policy_is_in_its_space(
    observations: spaces.Space[Any], actions: spaces.Space[Any], data: st.DataObject
) -> None:
    try:
        PolicyObservations(observations)
        seen = PolicyActions(actions).policy_space
    except UserError:  # It is empty.
        assume(False)
    RandomSpaces.declared, RandomSpaces.received = (observations, actions), 0
    run = data.draw(st.sampled_from(runs_for(seen)), "run")
    memory = {"use_lstm": data.draw(st.booleans(), "use_lstm")} if run not in ("DQN", "SAC") else {}
    untrained = Untrained.of(run, **memory)
    for explore in (True, False):
        untrained.runner.sample(num_timesteps=8, explore=explore, force_reset=True)
    untrained.runner.stop()
    assert RandomSpaces.received >= 10
    with TemporaryDirectory() as folder:
        checkpoint = untrained.checkpoint(Path(folder))
        for explore in (True, False):
            evaluate(checkpoint, episodes=2, explore=explore, seed=0)
