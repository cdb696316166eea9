"""Gymnasium's wrappers by name, between an environment and the policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import gymnasium.wrappers
import numpy as np
import pytest
from gymnasium.envs.registration import WrapperSpec
from gymnasium.vector import SyncVectorEnv

from payload.algorithms.algorithm_config import algorithm_config
from payload.environments.checked_vector import CheckedVector
from payload.environments.gymnasium_env_runner import GymnasiumEnvRunner
from payload.environments.make_env import make_env, make_vector
from payload.environments.wrappers import wrapped
from payload.errors import UserError
from payload.experiment.derived_defaults import with_defaults
from payload.experiment.file import read_mapping, to_yaml
from payload.experiment.read import read_experiment
from payload.experiment.wrappers import ALLOWED, REFUSED
from payload.run.checkpoints import Checkpoint
from payload.run.evaluate import evaluate

LAST_TWO: list[Any] = [{"FrameStackObservation": {"stack_size": 2}}, "FlattenObservation"]


class Doubled(gymnasium.RewardWrapper[Any, Any]):
    def reward(self, reward: Any) -> Any:
        return 2 * reward


def refusal(wrappers: Any) -> str:
    with pytest.raises(UserError) as error:
        read_experiment({"run": "PPO", "env": "Any-v0", "config": {"wrappers": wrappers}})
    return str(error.value)


def test_each_of_gymnasiums_wrappers_is_allowed_or_refused_with_a_reason() -> None:
    known = {name for name in gymnasium.wrappers.__all__ if name[0].isupper()}
    assert known == ALLOWED | REFUSED.keys()
    assert not ALLOWED & REFUSED.keys()


@pytest.mark.parametrize(
    ("wrappers", "words"),
    [
        (["FrameStack"], "FrameStack: no such wrapper of Gymnasium (did you mean FrameStackObserv"),
        (["NormalizeObservation"], "; set observation_filter: MeanStdFilter"),
        ([{"NormalizeReward": {"gamma": 0.9}}], "; set reward_scale, a number"),
        ([{"TransformReward": {"func": "abs"}}], "package:Class, or set reward_scale"),
        ([{"ClipAction": {}, "TimeLimit": {}}], "must be a name, or {name: {argument: value}}"),
        ([{"TimeLimit": 3}], "must be a name, or {name: {argument: value}}"),
        ([3], "config.wrappers: 3: must be a name"),
        ([{"TimeLimit": {3: 3}}], "config.wrappers.TimeLimit: 3: an argument's name is text"),
        ("ClipAction", "config.wrappers: 'ClipAction': input should be a valid list"),
    ],
)
def test_what_no_experiment_may_say_is_one_line(wrappers: Any, words: str) -> None:
    assert words in refusal(wrappers)


def test_an_experiments_file_keeps_them() -> None:
    config = {"wrappers": [{"TimeLimit": {"max_episode_steps": 3}}, {"ClipAction": None}]}
    experiment = read_experiment({"run": "PPO", "env": "Any-v0", "config": config}).experiment
    assert read_mapping(to_yaml(experiment))["config"] == config


def test_they_are_applied_in_order_before_the_policys_own() -> None:
    env = make_env("CartPole-v1", {}, wrappers=LAST_TWO)
    assert env.observation_space.shape == (8,)
    observation, _ = env.reset(seed=0)
    np.testing.assert_array_equal(observation[:4], observation[4:])


def test_a_vector_has_them_too_instead_of_the_packages_own_vector() -> None:
    env = make_vector("CartPole-v1", {}, num_envs=3, wrappers=LAST_TWO)
    assert isinstance(env.unwrapped, SyncVectorEnv)
    observations, _ = env.reset(seed=0)
    assert observations.shape == (3, 8)


def test_a_wrapper_of_ones_own_is_found() -> None:
    env = make_env("CartPole-v1", {}, wrappers=[f"{__name__}:Doubled"])
    env.reset(seed=0)
    assert env.step(0)[1] == 2


def test_lists_of_a_file_are_gymnasiums_tuples() -> None:
    wrappers: list[Any] = [{"ReshapeObservation": {"shape": [2, 2]}}]
    assert wrapped(gymnasium.make("CartPole-v1"), wrappers).observation_space.shape == (2, 2)


@pytest.mark.parametrize(
    ("wrapper", "words"),
    [
        ("FrameStackObservation", "config.wrappers.FrameStackObservation: needs stack_size"),
        (
            {"TimeLimit": {"max_episode_step": 3, "max_episode_steps": 3}},
            "no argument max_episode_step (did you mean max_episode_steps?)",
        ),
        ("ClipAction", "config.wrappers.ClipAction: AssertionError"),
        ({"TimeLimit": {"max_episode_steps": -1}}, "config.wrappers.TimeLimit: AssertionError"),
        ("volley_missing:Wrap", "config.wrappers: volley_missing:Wrap: cannot import volley_mi"),
        (f"{__name__}:Double", "has no Double (did you mean Doubled?)"),
        ("gymnasium:Env", "Env must be a subclass of Wrapper"),
    ],
)
def test_a_wrapper_that_does_not_fit_is_named(wrapper: Any, words: str) -> None:
    with pytest.raises(UserError) as error:
        make_env("CartPole-v1", {}, wrappers=[wrapper])
    assert words in str(error.value)


def test_scaled_rewards_are_not_those_of_the_returns() -> None:
    env = CheckedVector(make_vector("CartPole-v1", {}, num_envs=2), reward_scale=0.5)
    env.reset(seed=0)
    rewards = env.step(np.zeros(2, np.int64))[1]
    assert rewards.tolist() == [0.5, 0.5]
    while not env.finished:
        env.step(np.zeros(2, np.int64))
    assert env.finished[0].episode_return == env.finished[0].length


@pytest.mark.slow
def test_training_and_evaluation_play_in_them(tmp_path: Path) -> None:
    config = {"wrappers": [{"TimeLimit": {"max_episode_steps": 7}}], "fcnet_hiddens": [8]}
    values = {"run": "PPO", "env": "Pendulum-v1", "config": config}
    experiment = read_experiment(values).experiment
    settings = with_defaults(experiment, atari=False, num_env_runners=0)
    runner = GymnasiumEnvRunner(config=algorithm_config(experiment, settings), worker_index=0)
    runner.make_env()
    runner.make_module()
    episodes = runner.sample(num_timesteps=80)
    assert {len(episode) for episode in episodes if episode.is_done} == {7}
    checkpoint = Checkpoint(tmp_path)
    runner.module.save_to_path(checkpoint.module)
    checkpoint.experiment_file.write_text(to_yaml(experiment))
    assert evaluate(checkpoint, episodes=2).lengths == [7, 7]


def test_an_environment_registered_with_wrappers_has_them_in_training_too() -> None:
    aware = WrapperSpec("TimeAware", "gymnasium.wrappers:TimeAwareObservation", {})
    cartpole = gymnasium.spec("CartPole-v1")
    gymnasium.register(
        "Aware-v0",
        entry_point=cartpole.entry_point,
        vector_entry_point=cartpole.vector_entry_point,
        additional_wrappers=(aware,),
        max_episode_steps=100,
    )
    try:
        envs = make_env("Aware-v0", {}), make_vector("Aware-v0", {}, num_envs=2)
        shapes = envs[0].observation_space.shape, envs[1].observation_space.shape
    finally:
        del gymnasium.registry["Aware-v0"]
    assert shapes == ((5,), (2, 5))
