"""Episodes that are cut from arrays are those of RLlib's own env runner."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from ray.rllib.core.columns import Columns
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.utils.metrics import (
    NUM_ENV_STEPS_SAMPLED,
    NUM_EPISODES,
    NUM_EPISODES_LIFETIME,
    WEIGHTS_SEQ_NO,
)

from payload.algorithms.algorithm_config import algorithm_config
from payload.environments import gymnasium_env_runner
from payload.environments.array_sampling import can_sample
from payload.environments.gymnasium_env_runner import GymnasiumEnvRunner
from payload.experiment.derived_defaults import with_defaults
from payload.experiment.read import read_experiment

pytestmark = pytest.mark.slow

ENV, TUPLE = "Dials-v0", "DialsTuple-v0"


class Dials(gymnasium.Env[Any, Any]):
    """Shows the sum of all turns; an episode ends at random or is cut after six steps."""

    observation_space = spaces.Box(-1e6, 1e6, (2,), np.float32)
    action_space: spaces.Space[Any] = spaces.MultiDiscrete([3, 4])

    def __init__(self, **_: Any) -> None:
        pass

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._seen = self.np_random.normal(size=2).astype(np.float32)
        self._steps = 0
        return self._seen.copy(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._seen += np.float32(str(action).count("1"))
        self._steps += 1
        ends = bool(self.np_random.random() < 0.2)
        return self._seen.copy(), float(self._seen[0]), ends, self._steps == 6, {"steps": 1}


class DialsTuple(Dials):
    action_space = spaces.Tuple([spaces.Discrete(2), spaces.Box(-1, 1, (1,))])


@pytest.fixture(scope="module", autouse=True)
def registered() -> Iterator[None]:
    gymnasium.register(ENV, Dials)
    gymnasium.register(TUPLE, DialsTuple)
    yield
    for name in (ENV, TUPLE):
        del gymnasium.registry[name]


def env_runner(run: str, env: str, **config: Any) -> GymnasiumEnvRunner:
    config = {"num_envs_per_env_runner": 3, "fcnet_hiddens": [8], "seed": 5, **config}
    experiment = read_experiment({"run": run, "env": env, "config": config}).experiment
    settings = with_defaults(experiment, atari=False, num_env_runners=0)
    return GymnasiumEnvRunner(config=algorithm_config(experiment, settings), worker_index=0)


def content(episode: SingleAgentEpisode) -> list[Any]:
    return [
        episode.t_started,
        episode.is_terminated,
        episode.is_truncated,
        np.asarray(episode.get_observations()).tolist(),
        np.asarray(episode.get_actions()).tolist(),
        np.asarray(episode.get_rewards()).tolist(),
        np.asarray(episode.get_extra_model_outputs(WEIGHTS_SEQ_NO)).tolist(),
        # The learners of a policy gradient read it, also of actions that were not sampled. RLlib
        # has as many zeros as an action has parts.
        [np.any(logp) for logp in episode.extra_model_outputs.get(Columns.ACTION_LOGP, [])],
    ]


@pytest.mark.parametrize(
    ("run", "env"),
    [
        ("PPO", "CartPole-v1"),
        ("APPO", ENV),
        ("IMPALA", "Pendulum-v1"),
        ("DQN", "CartPole-v1"),
        ("SAC", "Pendulum-v1"),
    ],
)
def test_episodes_are_those_of_rllibs_own_env_runner(
    run: str, env: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, rllibs = env_runner(run, env), env_runner(run, env)
    rllibs.module.load_state_dict(ours.module.state_dict())
    monkeypatch.setattr(
        gymnasium_env_runner,
        "can_sample",
        lambda module, vector: module is ours.module and can_sample(module, vector),
    )
    ended: list[int] = []
    for steps in (50, 20, 1):
        samples = [runner.sample(num_timesteps=steps, explore=False) for runner in (ours, rllibs)]
        first, second = (sorted(map(content, episodes)) for episodes in samples)
        assert len(first) >= 3
        np.testing.assert_equal(first, second)
        ended.append(sum(episode.is_done for episode in samples[0]))
    metrics = [runner.get_metrics() for runner in (ours, rllibs)]
    counts = [logged[NUM_ENV_STEPS_SAMPLED].reduce() for logged in metrics]
    assert counts[0] == counts[1] >= 71
    for count in (NUM_EPISODES, NUM_EPISODES_LIFETIME):
        assert [logged[count].reduce() for logged in metrics] == [sum(ended), sum(ended)]


def test_environments_of_neighbouring_runs_and_of_a_second_start_differ() -> None:
    runners = env_runner("PPO", "CartPole-v1"), env_runner("PPO", "CartPole-v1", seed=6)
    first, neighbour = (starts(runner) for runner in runners)
    assert starts(env_runner("PPO", "CartPole-v1")) == first
    runners[0].make_env()  # After a fault.
    assert len({*first, *neighbour, *starts(runners[0])}) == 9


def starts(runner: GymnasiumEnvRunner) -> list[tuple[float, ...]]:
    """Returns the first observation of each environment, sorted."""
    episodes = runner.sample(num_timesteps=3)
    return sorted(tuple(episode.get_observations(0).tolist()) for episode in episodes)


def test_parts_of_an_episode_follow_each_other() -> None:
    runner = env_runner("PPO", ENV)
    parts: dict[str, list[SingleAgentEpisode]] = {}
    for _ in range(8):
        for episode in runner.sample(num_timesteps=7):
            parts.setdefault(episode.id_, []).append(episode)
    assert any(len(of_one) > 1 for of_one in parts.values())
    for of_one in parts.values():
        assert of_one[0].t_started == 0
        for before, after in pairwise(of_one):
            assert after.t_started == before.t
            assert not before.is_done
            np.testing.assert_equal(after.get_observations(0), before.get_observations(-1))
        assert of_one[-1].t <= 6


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1", ENV])
def test_an_action_is_logged_with_its_probability(env: str) -> None:
    runner = env_runner("PPO", env)
    of = runner.module.get_exploration_action_dist_cls()
    for episode in runner.sample(num_timesteps=300):
        inputs, actions, logp = (
            torch.from_numpy(np.array(values))
            for values in (
                episode.get_extra_model_outputs(Columns.ACTION_DIST_INPUTS),
                episode.get_actions(),
                episode.get_extra_model_outputs(Columns.ACTION_LOGP),
            )
        )
        torch.testing.assert_close(of.from_logits(inputs).logp(actions), logp)


def test_actions_are_as_frequent_as_the_policy_wants_them() -> None:
    runner = env_runner("PPO", "CartPole-v1")
    with torch.no_grad():
        runner.module.state_dict()["pi.net.mlp.0.bias"].copy_(torch.tensor([0.0, np.log(3.0)]))
        runner.module.state_dict()["pi.net.mlp.0.weight"].zero_()
    episodes = runner.sample(num_timesteps=4000)
    taken = np.concatenate([episode.get_actions() for episode in episodes])
    assert abs(taken.mean() - 0.75) < 0.03


def test_a_policy_that_has_diverged_is_an_error() -> None:
    runner = env_runner("PPO", "CartPole-v1")
    with torch.no_grad():
        runner.module.state_dict()["pi.net.mlp.0.bias"].fill_(torch.nan)
    with pytest.raises(ValueError, match="NaN"):
        runner.sample(num_timesteps=10)


class Reused(gymnasium.vector.VectorEnv[Any, Any, Any]):
    """Returns the same arrays in each step, with observations of a wider type."""

    def __init__(self, num_envs: int, **_: Any) -> None:
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
        self.num_envs = num_envs
        self.single_observation_space = spaces.Box(-1e6, 1e6, (2,), np.float32)
        self.single_action_space = spaces.Discrete(2)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._seen = np.zeros((num_envs, 2))
        self._ends, self._cut = np.zeros((2, num_envs), np.bool_)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self._seen[:] = 0
        return self._seen, {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        over = self._ends.copy()
        self._seen[:] = np.where(over[:, None], 0, self._seen + 1)
        self._ends[:] = self._seen[:, 0] == 3
        return self._seen, np.ones(self.num_envs), self._ends, self._cut, {}


def test_arrays_that_an_environment_uses_again_are_copied() -> None:
    spec = EnvSpec("Reused-v0", vector_entry_point=f"{__name__}:Reused")
    gymnasium.registry["Reused-v0"] = spec
    try:
        episodes = env_runner("PPO", "Reused-v0").sample(num_timesteps=36)
    finally:
        del gymnasium.registry["Reused-v0"]
    assert len(episodes) == 12
    for episode in episodes:
        assert episode.is_terminated
        seen = np.asarray(episode.get_observations())
        assert seen.dtype == np.float32
        assert seen[:, 0].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(("env", "config"), [("CartPole-v1", {"use_lstm": True}), (TUPLE, {})])
def test_a_policy_with_a_memory_or_a_tuple_of_actions_samples_one_by_one(
    env: str, config: dict[str, Any]
) -> None:
    runner = env_runner("PPO", env, **config)
    runner.make_env()
    assert runner.env is not None
    assert not can_sample(runner.module, runner.env)
    assert sum(map(len, runner.sample(num_timesteps=30))) >= 30
