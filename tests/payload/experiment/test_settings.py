"""Settings that an experiment leaves open, filled in beside those that it gives."""

from __future__ import annotations

from typing import Any

import pytest
from ray.rllib.algorithms.appo import APPOConfig
from ray.rllib.algorithms.impala import IMPALAConfig

from payload.experiment.derived_defaults import notes_on_defaults, with_defaults
from payload.experiment.impala_settings import ImpalaSettings
from payload.experiment.settings import Algorithm, Experiment, Stop
from payload.experiment.settings_of_every_algorithm import OtherOnly

DEPENDENT = ["lr", "vf_loss_coeff", "entropy_coeff", "uniform_kl_coeff", "num_epochs"]


def filled(run: Algorithm = "IMPALA", atari: bool = True, **config: Any) -> ImpalaSettings:
    settings = with_defaults(Experiment.model_validate({"run": run, "config": config}), atari)
    assert isinstance(settings, ImpalaSettings)
    return settings


def notes(atari: bool, **config: Any) -> list[str]:
    experiment = Experiment(env="CartPole-v1", config=ImpalaSettings(**config))
    return notes_on_defaults(experiment, atari)


@pytest.mark.parametrize(
    ("run", "key", "value"),
    [
        ("IMPALA", "num_epochs", 1),
        ("APPO", "num_epochs", 3),
        ("IMPALA", "minibatch_size", 4 * 32),
        ("APPO", "minibatch_size", 8 * 32),
        ("IMPALA", "uniform_kl_coeff_at_goal", 0.004),
        ("APPO", "uniform_kl_coeff_at_goal", None),
        ("IMPALA", "vf_loss_coeff", 4.0),
        ("APPO", "vf_loss_coeff", 0.5),
    ],
)
def test_each_algorithm_has_its_own_defaults(run: Algorithm, key: str, value: float) -> None:
    assert getattr(filled(run), key) == value


@pytest.mark.parametrize("key", ["lr", "vf_loss_coeff", "entropy_coeff", "clip_param"])
def test_an_atari_game_has_other_defaults_than_other_environments(key: str) -> None:
    assert getattr(filled(), key) != getattr(filled(atari=False), key)


def test_appo_knows_of_no_goal() -> None:
    settings = filled("APPO")
    assert settings.uniform_kl_coeff == 0
    assert settings.uniform_kl_coeff_at_goal is None


@pytest.mark.parametrize("key", ["lr", "vf_loss_coeff", "entropy_coeff"])
@pytest.mark.parametrize(("run", "rllibs"), [("IMPALA", IMPALAConfig), ("APPO", APPOConfig)])
def test_another_environment_has_rllibs_loss_and_step_size(
    run: Algorithm, rllibs: type[IMPALAConfig], key: str
) -> None:
    assert getattr(filled(run, atari=False), key) == getattr(rllibs(), key)


def test_a_learning_rate_that_was_asked_for_is_kept() -> None:
    assert filled(lr=1e-5).lr == 1e-5


@pytest.mark.parametrize("key", DEPENDENT)
def test_a_setting_given_as_null_has_its_default(key: str) -> None:
    given = Experiment(config=ImpalaSettings.model_validate({key: None}))
    assert with_defaults(given, atari=True) == filled()


@pytest.mark.parametrize("run", ["IMPALA", "APPO"])
def test_no_setting_of_an_atari_game_is_left_open_but_by_choice(run: Algorithm) -> None:
    settings = with_defaults(Experiment(run=run), atari=True, num_env_runners=2)
    fields = type(settings).model_fields
    others = {name for name, field in fields.items() if OtherOnly in field.metadata}
    open_by_choice = {"module", "seed", "epsilon", "evaluation_interval", "lr_at_goal"}
    if run == "APPO":
        open_by_choice.add("uniform_kl_coeff_at_goal")
    assert {name for name, value in settings if value is None} - others == open_by_choice


def test_an_entropy_coefficient_that_was_asked_for_is_all_that_keeps_the_policy_random() -> None:
    assert filled(entropy_coeff=0.01).uniform_kl_coeff == 0


def test_both_coefficients_are_kept_where_both_were_asked_for() -> None:
    assert filled(entropy_coeff=0.01, uniform_kl_coeff=0.02).uniform_kl_coeff == 0.02


def test_a_uniform_kl_coefficient_that_was_asked_for_is_not_annealed() -> None:
    assert filled(uniform_kl_coeff=0.01).uniform_kl_coeff_at_goal is None


def test_a_uniform_kl_coefficient_is_annealed_where_that_was_asked_for() -> None:
    settings = filled(uniform_kl_coeff=0.01, uniform_kl_coeff_at_goal=0.001)
    assert settings.uniform_kl_coeff_at_goal == 0.001


@pytest.mark.parametrize(("asked", "size"), [(None, 100), (1, 100), (100, 100), (101, 200)])
def test_a_train_batch_has_whole_fragments(asked: int | None, size: int) -> None:
    settings = filled(
        train_batch_size_per_learner=asked, rollout_fragment_length=20, num_envs_per_env_runner=5
    )
    assert settings.train_batch_size_per_learner == size


def test_a_train_batch_that_had_to_be_rounded_up_is_told() -> None:
    assert notes(atari=True, train_batch_size_per_learner=500) == [
        "config.train_batch_size_per_learner is now 1024: "
        "whole rollout fragments of 1024 environment steps"
    ]


@pytest.mark.parametrize("config", [{}, {"train_batch_size_per_learner": 2048}])
def test_a_train_batch_of_whole_fragments_needs_no_line(config: dict[str, int]) -> None:
    assert notes(atari=True, **config) == []


def test_settings_that_only_atari_has_are_named_elsewhere() -> None:
    assert notes(atari=False, frame_stack=2, gamma=0.9) == [
        "config.frame_stack is ignored: CartPole-v1 is not an Atari game, and "
        "RLlib's own env runner and learner train it"
    ]


def test_settings_left_alone_are_not_named_elsewhere() -> None:
    assert notes(atari=False) == []


def test_no_setting_of_an_atari_game_is_called_ignored() -> None:
    assert notes(atari=True, image_size=42, lambda_=0.9) == []


@pytest.mark.parametrize(
    ("stop", "has_note"),
    [
        ({"time_total_s": 60}, True),
        ({"time_total_s": 60, "num_env_steps_sampled_lifetime": 1000}, False),
        ({"num_env_steps_sampled_lifetime": 1000}, False),
    ],
)
def test_a_note_says_that_schedules_follow_the_clock(
    stop: dict[str, float], has_note: bool
) -> None:
    experiment = Experiment(stop=Stop.model_validate(stop))
    lines = [line for line in notes_on_defaults(experiment, atari=True) if "the clock" in line]
    assert bool(lines) == has_note
