"""A short, real learning run: env runner, connector, learner and module in one process.

It uses Catch, which is learnt in seconds and only by acting on observations: a wrong sign,
a broken loss or a shuffled action leaves the return unchanged.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.columns import Columns
from ray.rllib.core.learner.learner import Learner
from ray.rllib.core.learner.training_data import TrainingData
from ray.rllib.utils.metrics import NUM_ENV_STEPS_SAMPLED_LIFETIME

from payload.algorithms.algorithm_config import algorithm_config
from payload.environments.atari import AtariSettings
from payload.experiment.derived_defaults import with_defaults
from payload.experiment.read import read_experiment
from payload.impala.atari_env_runner import AtariEnvRunner
from payload.impala.train_batch import FragmentsToTrainBatch
from tests.payload.impala.catch import CatchVectorEnv

pytestmark = pytest.mark.slow

SIZES = {"num_envs_per_env_runner": 16, "rollout_fragment_length": 32}
NUM_FRAGMENTS = {"IMPALA": 50, "APPO": 30, "PQN": 40}
"""Each has 512 environment steps. APPO passes over each of them three times."""
EXPLORATION = {"PQN": {"epsilon": [[0, 1.0], [10_000, 0.05]]}}
MEMORY = {"use_lstm": True, "lstm_cell_size": 64, "frame_stack": 1}
MEASURED = 10
"""The episodes of this many last fragments count."""


@pytest.fixture(autouse=True)
def _catch(monkeypatch: pytest.MonkeyPatch) -> None:
    def make(settings: AtariSettings, num_envs: int, **_: Any) -> CatchVectorEnv:
        hidden = settings.frame_stack == 1
        return CatchVectorEnv(num_envs, settings.image_size, settings.frame_stack, hidden)

    monkeypatch.setattr("payload.impala.atari_env_runner.make_vector_env", make)
    monkeypatch.setattr("payload.impala.module.make_vector_env", make)


def return_after_learning(run: str, num_fragments: int, **more: Any) -> float:
    """Trains on rollout fragments; returns the mean return of the last episodes, in [-1, 1]."""
    raw = {"run": run, "config": {**SIZES, **more, "num_env_runners": 1, "seed": 1}}
    experiment = read_experiment(raw).experiment
    config = algorithm_config(experiment, with_defaults(experiment, atari=True, num_env_runners=1))
    env_runner = AtariEnvRunner(config=config, worker_index=1)
    learner = config.build_learner(env=env_runner.env, spaces=env_runner.get_spaces())
    returns: list[float] = []
    for fragment in range(num_fragments):
        if fragment == num_fragments - MEASURED:
            returns.clear()
        episodes = env_runner.sample()
        returns += [episode.rewards.sum() / episode.terminated.sum() for episode in episodes]
        # RLlib's own IMPALA learner would only hand the batch to its thread.
        Learner.update(
            learner,
            training_data=TrainingData(episodes=episodes),
            timesteps={NUM_ENV_STEPS_SAMPLED_LIFETIME: (fragment + 1) * len(episodes[0])},
            _no_metrics_reduce=True,
        )
        env_runner.module.set_state(learner.module[DEFAULT_MODULE_ID].unwrapped().get_state())
    env_runner.stop()
    return float(np.mean(returns))


@pytest.mark.parametrize("run", NUM_FRAGMENTS)
def test_catch_is_learnt_in_a_few_seconds(run: str) -> None:
    # A paddle that stands still catches one ball in six: -0.67.
    mean = return_after_learning(run, NUM_FRAGMENTS[run], **EXPLORATION.get(run, {}))
    assert mean > 0.0


def test_an_lstm_remembers_where_the_ball_was() -> None:
    # Without a memory it stays at -0.5.
    assert return_after_learning("APPO", 80, **MEMORY) > 0.0


def test_a_learners_lstm_is_in_the_state_of_the_env_runners() -> None:
    raw = {"run": "IMPALA", "config": {**SIZES, **MEMORY, "num_env_runners": 1, "seed": 1}}
    experiment = read_experiment(raw).experiment
    config = algorithm_config(experiment, with_defaults(experiment, atari=True, num_env_runners=1))
    env_runner = AtariEnvRunner(config=config, worker_index=1)
    module = env_runner.module
    with torch.no_grad():
        module.policy.weight.mul_(100.0)  # Untrained, its policy hardly depends on the state.
    env_runner.sample()
    (fragment,) = env_runner.sample()  # Episodes end in it, and it begins within one.
    assert not fragment.first[0].any()
    assert fragment.state is not None
    assert fragment.state.any()
    connector = FragmentsToTrainBatch(module.observation_space, module.action_space)
    batch = connector(episodes=[fragment], batch={})[DEFAULT_MODULE_ID]
    with torch.no_grad():
        logits = module._forward(batch)[Columns.ACTION_DIST_INPUTS]
    logp = torch.log_softmax(logits, -1).gather(-1, batch[Columns.ACTIONS].view(-1, 1))
    steps = logp.view(SIZES["num_envs_per_env_runner"], -1)[:, :-1].T
    np.testing.assert_allclose(steps, fragment.action_logp, rtol=1e-4, atol=1e-4)
    env_runner.stop()
