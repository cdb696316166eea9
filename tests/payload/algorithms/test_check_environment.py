"""An environment that an algorithm cannot use is refused in one line, before anything starts."""

from __future__ import annotations

from typing import Any

import pytest

from payload.algorithms.check_environment import check_algorithm
from payload.environments.probe import EnvironmentFacts
from payload.errors import UserError
from payload.experiment.read import read_experiment

TWO_ACTIONS = EnvironmentFacts(8, actions="Discrete(2)", discrete=True)
A_BOX = EnvironmentFacts(8, actions="Box(-1.0, 1.0, (2,), float32)", discrete=False)


def check(facts: EnvironmentFacts, run: str, **config: Any) -> None:
    check_algorithm(
        read_experiment({"run": run, "env": "Any-v0", "config": config}).experiment, facts
    )


def refusal(facts: EnvironmentFacts, run: str, **config: Any) -> str:
    with pytest.raises(UserError) as error:
        check(facts, run, **config)
    return str(error.value)


@pytest.mark.parametrize("run", ["IMPALA", "APPO", "PPO", "DQN"])
def test_epsilon_is_for_discrete_actions(run: str) -> None:
    check(TWO_ACTIONS, run, epsilon=0.1)


@pytest.mark.parametrize("run", ["IMPALA", "APPO", "PPO"])
def test_epsilon_of_continuous_actions_is_refused(run: str) -> None:
    said = refusal(A_BOX, run, epsilon=[[0, 1.0], [100, 0.1]])
    assert said.startswith(f"config.epsilon: needs discrete actions; Any-v0 has {A_BOX.actions}")


def test_dqn_on_continuous_actions_is_refused() -> None:
    assert "allowed: IMPALA, APPO, PPO, SAC" in refusal(A_BOX, "DQN")


@pytest.mark.parametrize("run", ["DQN", "SAC"])
def test_a_replay_buffer_beyond_the_memory_is_refused_with_what_fits(run: str) -> None:
    facts = TWO_ACTIONS if run == "DQN" else A_BOX
    said = refusal(facts, run, replay_buffer_capacity=10**12)
    assert said.startswith("config.replay_buffer_capacity: 1000000000000 steps")
    check(facts, run, replay_buffer_capacity=int(said.split()[-2]) // 2)


SEVERAL = EnvironmentFacts(8, actions="MultiDiscrete([2 3])", composed=True)


@pytest.mark.parametrize("run", ["DQN", "SAC"])
def test_several_actions_at_once_are_for_policy_gradients(run: str) -> None:
    assert refusal(SEVERAL, run).endswith("allowed: IMPALA, APPO, PPO")
    check(SEVERAL, "PPO")


@pytest.mark.parametrize(("facts", "allowed"), [(TWO_ACTIONS, "DQN, IMPALA"), (A_BOX, "IMPALA")])
def test_pqn_on_another_environment_is_refused(facts: EnvironmentFacts, allowed: str) -> None:
    message = refusal(facts, "PQN")
    assert message == f"run: PQN learns only Atari games, not Any-v0; allowed: {allowed}, APPO, PPO"
    check(GAME, "PQN")


def test_sac_takes_discrete_actions() -> None:
    check(TWO_ACTIONS, "SAC")


def test_sac_on_actions_without_bounds_is_refused() -> None:
    facts = EnvironmentFacts(8, actions="Box(0.0, inf, (1,), float32)", bounded=False)
    assert "SAC needs actions with two bounds; Any-v0 has Box(0.0, inf" in refusal(facts, "SAC")
    check(facts, "PPO")


LARGE = EnvironmentFacts(2**30, 'observation_space["cell"] is Discrete(268435456)', discrete=True)


@pytest.mark.parametrize("run", ["IMPALA", "APPO", "PPO", "DQN", "SAC"])
def test_observations_beyond_the_memory_are_refused_with_the_largest_entry(run: str) -> None:
    said = refusal(LARGE, run)
    assert LARGE.largest in said
    assert "more than this machine has free" in said


def test_a_smaller_train_batch_fits() -> None:
    facts = EnvironmentFacts(10**6, discrete=True)
    said = refusal(facts, "PPO", train_batch_size_per_learner=10**9)
    check(facts, "PPO", train_batch_size_per_learner=int(said.split()[-2]) // 2)


@pytest.mark.parametrize(
    ("run", "key", "owners"),
    [
        ("PPO", "replay_buffer_capacity", "DQN and SAC"),
        ("DQN", "use_lstm", "IMPALA and APPO and PPO"),
        ("SAC", "epsilon", "IMPALA and APPO and PQN and PPO and DQN"),
        ("IMPALA", "actor_lr", "SAC"),
    ],
)
def test_a_key_of_another_algorithm_is_named_as_such(run: str, key: str, owners: str) -> None:
    with pytest.raises(UserError) as error:
        check(TWO_ACTIONS, run, **{key: 1})
    assert str(error.value) == f"config.{key}: is a setting of {owners}; this experiment runs {run}"


GAME = EnvironmentFacts(7056, actions="Discrete(6)", discrete=True, image=True, atari=True)


@pytest.mark.parametrize(
    ("run", "config", "words"),
    [
        ("PPO", {"observation_filter": "MeanStdFilter"}, "is for vectors, and Any-v0 shows images"),
        ("PPO", {"wrappers": ["ClipAction"]}, "config.wrappers: Any-v0 is an Atari game: image_s"),
        ("DQN", {"reward_scale": 0.1}, "clip_rewards is its scale of rewards"),
        ("APPO", {"module": "own:Net"}, "APPO has a network of its own for Atari games"),
    ],
)
def test_what_no_atari_game_has_is_refused(run: str, config: dict[str, Any], words: str) -> None:
    assert words in refusal(GAME, run, **config)
    check(TWO_ACTIONS, run, **config)


def test_a_filter_is_for_one_vector() -> None:
    image = EnvironmentFacts(100, actions="Discrete(2)", discrete=True, image=True)
    assert "shows images" in refusal(image, "PPO", observation_filter="MeanStdFilter")
    several = EnvironmentFacts(8, actions="Discrete(2)", discrete=True, keeps_dict=True)
    own = {"module": "own:Net", "observation_filter": "MeanStdFilter"}
    assert "config.module sees the Dict of Any-v0" in refusal(several, "PPO", **own)


@pytest.mark.parametrize("run", ["IMPALA", "APPO", "PPO"])
def test_a_module_of_ones_own_explores_by_itself(run: str) -> None:
    said = refusal(TWO_ACTIONS, run, module="own:Net", epsilon=0.1)
    assert said.startswith("config.epsilon: config.module does its own exploration")
    check(TWO_ACTIONS, "DQN", module="own:Net", epsilon=0.1)
