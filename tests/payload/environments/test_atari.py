"""Which environments are Atari games of the fast path, and with which settings."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from ale_py.vector_env import AtariVectorEnv
from hypothesis import example, given
from hypothesis import strategies as st

from payload.environments.atari import AtariSettings, game_of, make_vector_env
from payload.errors import UserError
from payload.experiment.impala_settings import ImpalaSettings
from payload.experiment.settings import Experiment


def pong(**env_config: Any) -> Experiment:
    return Experiment.model_validate({"config": {"env_config": env_config}})


def refusal(env: str) -> str:
    with pytest.raises(UserError) as error:
        game_of(Experiment(env=env))
    return str(error.value)


def test_an_atari_game_takes_the_fast_path() -> None:
    game = game_of(pong())
    assert game is not None
    assert game.game == "pong"


def test_another_environment_takes_the_standard_path() -> None:
    assert game_of(Experiment(env="CartPole-v1")) is None


def test_a_game_has_the_experiments_preprocessing() -> None:
    game = game_of(Experiment(config=ImpalaSettings(image_size=84, image_width=80, frame_stack=2)))
    assert game is not None
    assert (game.image_shape, game.frame_stack) == ((84, 80), 2)


@pytest.mark.parametrize(
    ("config", "shape"),
    [
        ({}, (42, 42)),
        ({"image_size": 84}, (84, 84)),
        ({"image_width": 40}, (42, 40)),
        ({"env_config": {"image_size": 84}}, (84, 84)),
        ({"env_config": {"image_size": 84, "image_width": 80}}, (84, 80)),
        ({"image_width": 40, "env_config": {"image_size": 84}}, (84, 40)),
    ],
)
def test_a_game_without_a_width_is_a_square(config: dict[str, Any], shape: tuple[int, int]) -> None:
    game = game_of(Experiment(config=ImpalaSettings(**config)))
    assert game is not None
    assert game.image_shape == shape


def test_env_config_overrides_a_games_settings() -> None:
    game = game_of(pong(noop_max=5))
    assert game is not None
    assert game.noop_max == 5


def test_an_unknown_env_config_key_names_the_nearest() -> None:
    with pytest.raises(UserError) as error:
        game_of(pong(noop_maxx=5))
    message = "config.env_config.noop_maxx: unknown key (did you mean noop_max?)"
    assert str(error.value) == message


def test_env_config_does_not_replace_the_game() -> None:
    with pytest.raises(UserError, match=r"^config\.env_config\.game: "):
        game_of(pong(game="breakout"))


@pytest.mark.parametrize(
    ("value", "words"), [("5", "'5' is not of type int"), (True, "True is not of type int")]
)
def test_an_env_config_value_of_another_type_is_refused(value: object, words: str) -> None:
    with pytest.raises(UserError, match=rf"^config\.env_config\.noop_max: {words}$"):
        game_of(pong(noop_max=value))


def test_a_whole_number_is_a_probability_too() -> None:
    game = game_of(pong(repeat_action_probability=0))
    assert game is not None
    assert game.repeat_action_probability == 0


@pytest.mark.parametrize(
    ("env", "meant"), [("PongNoFrameskip-v5", "PongNoFrameskip-v4"), ("CartPol-v1", "CartPole-v1")]
)
def test_an_unknown_environment_names_the_nearest(env: str, meant: str) -> None:
    message = refusal(env)
    assert message == f"env: {env}: no such Gymnasium environment (did you mean {meant}?)"


@given(st.text(max_size=30) | st.sampled_from([*gymnasium.registry]))
@example("a\nb")
@example("json:CartPole-v1")
@example("CartPole\n-v1")
@example("no.such:module-v1")
def test_any_environment_is_known_or_refused_in_one_line(env: str) -> None:
    message = ""
    try:
        game_of(Experiment(env=env))
    except UserError as error:
        message = str(error)
    assert len(message.splitlines()) <= 1


NOOP, FIRE = 0, 1
WAITS = 20
"""Steps in which a game that waits shows no change."""


def is_waiting(env: AtariVectorEnv) -> bool:
    """Returns whether nothing moves while no button is pressed."""
    env.step(np.array([NOOP]))
    shown = [env.step(np.array([NOOP]))[0][0, -1] for _ in range(WAITS)]
    return all(np.array_equal(frame, shown[0]) for frame in shown)


def lives_after(env: AtariVectorEnv, action: int) -> int:
    infos: dict[str, Any] = env.step(np.array([action]))[-1]
    return int(infos["lives"][0])


def test_a_game_that_waits_for_fire_waits_for_the_policy() -> None:
    """It waits at its start and after each lost life; volley does not press the button."""
    env = make_vector_env(AtariSettings("breakout", noop_max=1), num_envs=1)
    env.reset(seed=1)
    assert is_waiting(env)
    lives = lives_after(env, FIRE)
    assert not is_waiting(env)
    while lives_after(env, NOOP) == lives:
        pass
    assert is_waiting(env)
    lives_after(env, FIRE)
    assert not is_waiting(env)
    env.close()


def test_sticky_actions_of_games_without_a_seed_differ() -> None:
    """The emulator alone would seed them with the second in which it loads a game."""
    games = 8
    settings = AtariSettings("breakout", repeat_action_probability=0.25, noop_max=1)
    env = make_vector_env(settings, games)
    env.reset()
    actions = np.random.default_rng(0).integers(4, size=100)
    shown = [env.step(np.full(games, action))[0][:, -1] for action in actions]
    env.close()
    assert len({play.tobytes() for play in np.stack(shown, axis=1)}) == games
