"""Epsilon-greedy exploration: actions have the probability that is logged with them."""

from __future__ import annotations

from collections.abc import Iterator

import gymnasium
import numpy as np
import pytest
import torch
from ray.rllib.core.columns import Columns

from payload.algorithms.algorithm_config import algorithm_config
from payload.environments.gymnasium_env_runner import GymnasiumEnvRunner
from payload.experiment.derived_defaults import with_defaults
from payload.experiment.read import read_experiment
from payload.impala.atari_env_runner import AtariEnvRunner
from payload.impala.epsilon_greedy import EpsilonGreedyPPOModule, mixture_logp
from payload.impala.schedule import value_at

DRAWS = 20_000
EPSILON = [[0, 1.0], [1000, 0.2]]


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_the_mixture_is_of_the_uniform_and_the_policy(epsilon: float) -> None:
    policy = np.array([0.5, 0.3, 0.15, 0.05])
    logp = mixture_logp(torch.from_numpy(np.log(policy)), epsilon).numpy()
    np.testing.assert_allclose(np.exp(logp), epsilon / 4 + (1 - epsilon) * policy)


def test_a_schedule_is_linear_and_then_constant() -> None:
    assert [value_at(EPSILON, at) for at in (0, 500, 1000, 9000)] == pytest.approx(
        [1, 0.6, 0.2, 0.2]
    )


@pytest.mark.parametrize("position", [0, 500, 1000])
def test_actions_are_as_frequent_as_their_logged_probability(position: int) -> None:
    module = EpsilonGreedyPPOModule(
        observation_space=gymnasium.spaces.Box(-1, 1, (3,)),
        action_space=gymnasium.spaces.Discrete(4),
        model_config={"epsilon": EPSILON},
    )
    with torch.no_grad():
        module.pi.net.mlp[-1].weight.mul_(20.0)
    observations = torch.tensor([0.5, -0.9, 0.1]).expand(DRAWS, 3)
    outputs = module.forward_exploration({Columns.OBS: observations}, t=position)
    actions, logp = outputs[Columns.ACTIONS].numpy(), outputs[Columns.ACTION_LOGP].numpy()
    for action in range(4):
        taken = actions == action
        (probability,) = np.unique(np.exp(logp[taken])) if taken.any() else (0.0,)
        deviation = np.sqrt(probability * (1 - probability) / DRAWS)
        assert abs(taken.mean() - probability) <= 4 * deviation


# In env runners


@pytest.fixture(params=["PongNoFrameskip-v4", "CartPole-v1"])
def runner(request: pytest.FixtureRequest) -> Iterator[AtariEnvRunner | GymnasiumEnvRunner]:
    """The second of three env runners, of eight environments each."""
    env = request.param
    config = {"epsilon": EPSILON, "num_envs_per_env_runner": 8, "rollout_fragment_length": 10}
    experiment = read_experiment({"env": env, "config": config}).experiment
    settings = with_defaults(experiment, atari=env != "CartPole-v1", num_env_runners=3)
    rllib = algorithm_config(experiment, settings)
    found = rllib.env_runner_cls(config=rllib, worker_index=2)
    yield found
    found.stop()


@pytest.mark.slow
def test_the_schedule_falls_with_the_steps_of_all_env_runners(
    runner: AtariEnvRunner | GymnasiumEnvRunner,
) -> None:
    runner.sample(num_timesteps=80)
    assert runner.num_env_steps_sampled_lifetime == pytest.approx(3 * 80, abs=3 * 8)
    runner.set_state({"num_env_steps_sampled_lifetime": 600})
    runner.sample(num_timesteps=80)
    assert runner.num_env_steps_sampled_lifetime == pytest.approx(600 + 3 * 80, abs=3 * 8)


@pytest.mark.slow
def test_an_action_is_logged_with_the_probability_of_the_mixture(
    runner: AtariEnvRunner | GymnasiumEnvRunner,
) -> None:
    # A new Pong policy is uniform within a few hundredths; this one takes its first action.
    bias = runner.module.state_dict()[
        "policy.bias" if isinstance(runner, AtariEnvRunner) else "pi.net.mlp.0.bias"
    ]
    with torch.no_grad():
        bias[0] = 1000.0
    actions = len(bias)
    runner.set_state({"num_env_steps_sampled_lifetime": 10_000})
    if isinstance(runner, AtariEnvRunner):
        (fragment,) = runner.sample(num_timesteps=800)
        taken, logp = fragment.actions.ravel(), fragment.action_logp.ravel()
    else:
        samples = runner.sample(num_timesteps=800)
        taken = np.concatenate([episode.get_actions() for episode in samples])
        logp = np.concatenate(
            [episode.get_extra_model_outputs("action_logp") for episode in samples]
        )
    np.testing.assert_allclose(np.exp(logp[taken == 0]), 0.8 + 0.2 / actions, rtol=1e-4)
    np.testing.assert_allclose(np.exp(logp[taken != 0]), 0.2 / actions, rtol=1e-4)
    assert abs((taken != 0).mean() - 0.2 * (1 - 1 / actions)) < 0.05
