"""What an experiment leaves open, filled in; and what does not fit on the cluster."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from ray.rllib.algorithms.appo import APPOConfig
from ray.rllib.algorithms.impala import IMPALAConfig

from payload.errors import UserError
from payload.experiment.placement import (
    ALGORITHM_DEFAULTS,
    FAST_PATH_DEFAULTS,
    game_of,
    ignored_on_standard_path,
    resolve_settings,
    train_batch_filled_up,
)
from payload.experiment.settings import Experiment, Settings, parse_experiment


def resolved(num_cpus: int, run: str = "IMPALA", **config: Any) -> Settings:
    experiment = Experiment.model_validate({"run": run, "config": config})
    return resolve_settings(experiment, num_cpus)


def refusal(num_cpus: int, **config: Any) -> str:
    with pytest.raises(UserError) as error:
        resolved(num_cpus, **config)
    return str(error.value)


def pong(**env_config: Any) -> Experiment:
    return Experiment.model_validate({"config": {"env_config": env_config}})


def test_every_cpu_gets_an_env_runner() -> None:
    assert resolved(14).num_env_runners == 14


def test_learners_without_a_gpu_take_their_cpus_first() -> None:
    assert resolved(14, num_learners=2).num_env_runners == 12


def test_learners_with_a_gpu_take_no_cpu() -> None:
    settings = resolved(14, num_learners=2, num_gpus_per_learner=1.0)
    assert settings.num_env_runners == 14


def test_env_runners_of_several_cpus_are_fewer() -> None:
    assert resolved(14, num_cpus_per_env_runner=4).num_env_runners == 3


def test_env_runners_that_were_asked_for_are_kept() -> None:
    assert resolved(14, num_env_runners=5).num_env_runners == 5


def test_as_many_env_runners_as_cpus_fit() -> None:
    assert resolved(4, num_env_runners=4).num_env_runners == 4


def test_more_env_runners_than_cpus_are_refused() -> None:
    assert refusal(4, num_env_runners=5) == (
        "config.num_env_runners: 5 is more than the 4 that fit on the cluster "
        "(4 CPUs, 0 of them for learners, 1 for each env runner)"
    )


def test_env_runners_that_only_fit_without_the_learners_are_refused() -> None:
    message = refusal(4, num_env_runners=4, num_learners=1)
    assert message.startswith("config.num_env_runners: 4 is more than the 3 that fit")


def test_a_cluster_with_no_cpu_left_for_an_env_runner_is_refused() -> None:
    assert "is more than the 0 that fit" in refusal(1, num_learners=1)


@given(
    st.integers(1, 16),
    st.integers(0, 8),
    st.integers(1, 8),
    st.none() | st.integers(0, 20),
)
@example(num_cpus=1, num_learners=2, cpus_each=1, num_env_runners=0)
def test_what_fits_never_takes_more_cpus_than_there_are(
    num_cpus: int, num_learners: int, cpus_each: int, num_env_runners: int | None
) -> None:
    try:
        settings = resolved(
            num_cpus,
            num_learners=num_learners,
            num_cpus_per_env_runner=cpus_each,
            num_env_runners=num_env_runners,
        )
    except UserError:
        return
    assert settings.num_env_runners is not None
    assert settings.num_env_runners * cpus_each + num_learners <= num_cpus


@pytest.mark.parametrize(
    ("run", "key"),
    [(run, key) for run, defaults in ALGORITHM_DEFAULTS.items() for key in defaults],
)
def test_each_algorithm_has_its_own_defaults(run: str, key: str) -> None:
    assert getattr(resolved(2, run), key) == ALGORITHM_DEFAULTS[run][key]


@pytest.mark.parametrize("run", list(ALGORITHM_DEFAULTS))
@pytest.mark.parametrize("key", list(FAST_PATH_DEFAULTS))
def test_an_atari_game_has_the_fast_paths_defaults(run: str, key: str) -> None:
    assert getattr(resolved(2, run), key) == FAST_PATH_DEFAULTS[key]


def test_a_learning_rate_that_was_asked_for_is_kept() -> None:
    assert resolved(2, lr=1e-5).lr == 1e-5


@pytest.mark.parametrize("key", [*FAST_PATH_DEFAULTS, *ALGORITHM_DEFAULTS["IMPALA"]])
def test_a_setting_given_as_null_has_its_default(key: str) -> None:
    assert resolved(2, "IMPALA", **{key: None}) == resolved(2, "IMPALA")


def test_an_entropy_coefficient_that_was_asked_for_is_all_that_keeps_the_policy_random() -> None:
    assert resolved(2, entropy_coeff=0.01).uniform_kl_coeff == 0


def test_a_uniform_kl_coefficient_that_was_asked_for_does_not_fall() -> None:
    assert resolved(2, uniform_kl_coeff=0.01).uniform_kl_coeff_at_goal is None


def test_a_uniform_kl_coefficient_falls_where_that_was_asked_for() -> None:
    settings = resolved(2, uniform_kl_coeff=0.01, uniform_kl_coeff_at_goal=0.001)
    assert settings.uniform_kl_coeff_at_goal == 0.001


@pytest.mark.parametrize("key", ["lr", "vf_loss_coeff", "entropy_coeff"])
@pytest.mark.parametrize(("run", "rllibs"), [("IMPALA", IMPALAConfig), ("APPO", APPOConfig)])
def test_another_environment_has_rllibs_loss_and_step_size(
    run: str, rllibs: type[IMPALAConfig], key: str
) -> None:
    experiment = parse_experiment({"run": run, "env": "CartPole-v1"}).experiment
    assert getattr(resolve_settings(experiment, num_cpus=2), key) == getattr(rllibs(), key)


def test_a_train_batch_is_one_fragment() -> None:
    settings = resolved(2, rollout_fragment_length=20, num_envs_per_env_runner=5)
    assert settings.train_batch_size_per_learner == 100


@pytest.mark.parametrize(("asked", "size"), [(1, 100), (100, 100), (101, 200), (500, 500)])
def test_a_train_batch_is_filled_up_to_whole_fragments(asked: int, size: int) -> None:
    settings = resolved(
        2,
        train_batch_size_per_learner=asked,
        rollout_fragment_length=20,
        num_envs_per_env_runner=5,
    )
    assert settings.train_batch_size_per_learner == size


def test_a_train_batch_that_had_to_be_filled_up_is_told() -> None:
    experiment = Experiment.model_validate({"config": {"train_batch_size_per_learner": 500}})
    (line,) = train_batch_filled_up(experiment, resolve_settings(experiment, num_cpus=2))
    assert line == (
        "config.train_batch_size_per_learner is now 1024: whole fragments of 1024 agent steps"
    )


@pytest.mark.parametrize("config", [{}, {"train_batch_size_per_learner": 2048}])
def test_a_train_batch_of_whole_fragments_needs_no_line(config: dict[str, int]) -> None:
    experiment = Experiment.model_validate({"config": config})
    assert train_batch_filled_up(experiment, resolve_settings(experiment, num_cpus=2)) == []


def test_an_atari_game_takes_the_fast_path() -> None:
    game = game_of(pong())
    assert game is not None
    assert game.game == "pong"


def test_another_environment_takes_the_standard_path() -> None:
    assert game_of(Experiment(env="CartPole-v1")) is None


def test_a_game_has_the_experiments_preprocessing() -> None:
    game = game_of(Experiment(config=Settings(image_size=84, frame_stack=2)))
    assert game is not None
    assert (game.image_size, game.frame_stack) == (84, 2)


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


@pytest.mark.parametrize(("value", "words"), [("5", "'5' is no int"), (True, "True is no int")])
def test_an_env_config_value_of_another_type_is_refused(value: object, words: str) -> None:
    with pytest.raises(UserError, match=rf"^config\.env_config\.noop_max: {words}$"):
        game_of(pong(noop_max=value))


def test_a_whole_number_is_a_probability_too() -> None:
    game = game_of(pong(repeat_action_probability=0))
    assert game is not None
    assert game.repeat_action_probability == 0


def test_settings_that_only_atari_has_are_named_elsewhere() -> None:
    experiment = Experiment(env="CartPole-v1", config=Settings(frame_stack=2, gamma=0.9))
    assert ignored_on_standard_path(experiment) == [
        "config.frame_stack is ignored: CartPole-v1 is no Atari game and runs on RLlib's own path"
    ]


def test_settings_left_alone_are_not_named_elsewhere() -> None:
    assert ignored_on_standard_path(Experiment(env="CartPole-v1")) == []


@pytest.mark.parametrize("env", ["PongNoFrameskip-v4", "BreakoutNoFrameskip-v4"])
def test_nothing_of_an_atari_games_settings_is_called_ignored(env: str) -> None:
    experiment = Experiment(env=env, config=Settings(image_size=42, lambda_=0.9))
    assert ignored_on_standard_path(experiment) == []
