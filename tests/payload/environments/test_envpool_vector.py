"""Environments of EnvPool, where it is installed; volley does not install it."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from payload.environments.checked_vector import CheckedVector
from payload.environments.envpool_vector import PACKAGE
from payload.environments.info_metrics import InfoMetrics
from payload.environments.make_env import make_env, make_vector

pytestmark = [
    pytest.mark.slow,
    # EnvPool gives its boxes of float32 bounds of float64.
    pytest.mark.filterwarnings("ignore:.*precision lowered by casting"),
    pytest.mark.skipif(
        importlib.util.find_spec(PACKAGE) is None, reason=f"{PACKAGE} is not installed"
    ),
]

CARTPOLE, PENDULUM = f"{PACKAGE}:CartPole-v1", f"{PACKAGE}:Pendulum-v1"


@pytest.mark.parametrize("env_id", [CARTPOLE, PENDULUM])
def test_the_policy_sees_what_it_sees_in_gymnasiums_own_environment(env_id: str) -> None:
    pool, own = make_vector(env_id, {}, num_envs=3), make_env(env_id, {})
    assert pool.single_action_space == own.action_space
    assert pool.single_observation_space.shape == own.observation_space.shape
    assert pool.reset(seed=0)[0] in pool.observation_space
    observations, rewards, *_ = pool.step(pool.action_space.sample())
    assert (observations.dtype, rewards.shape) == (np.float32, (3,))


def test_a_seed_decides_the_play_and_without_one_each_process_has_its_own() -> None:
    first, second, other = (make_vector(CARTPOLE, {}, num_envs=3) for _ in range(3))
    starts = [env.reset(seed=7)[0] for env in (first, second)]
    np.testing.assert_array_equal(*starts)
    assert len(np.unique(starts[0][:, 0])) == 3
    assert not np.array_equal(other.reset()[0], starts[0])
    assert not np.array_equal(first.reset()[0], starts[0])


def test_an_episode_ends_with_its_own_return_and_the_next_step_resets() -> None:
    info_metrics = InfoMetrics(("elapsed_step",))
    env = CheckedVector(make_vector(CARTPOLE, {}, num_envs=2), info_metrics=info_metrics)
    env.reset(seed=0)
    while not env.finished:
        *_, terminated, _, _ = env.step(np.ones(2, np.int64))
    episode = env.finished[0]
    assert episode.length == episode.episode_return == episode.info["elapsed_step"]
    _, rewards, again, _, _ = env.step(np.ones(2, np.int64))
    assert (rewards[terminated] == 0).all()
    assert not again[terminated].any()


def test_env_config_is_envpools() -> None:
    env = make_vector(CARTPOLE, {"max_episode_steps": 3}, num_envs=1)
    env.reset(seed=0)
    ends = [bool(env.step(np.array([step % 2]))[3][0]) for step in range(3)]
    assert ends == [False, False, True]
