"""Settings that follow the number of env runners, and what learners are told of them."""

from __future__ import annotations

from typing import Any

from payload.environments.atari import game_of
from payload.experiment.common_settings import CommonSettings
from payload.experiment.settings import Experiment, Settings, Stop, with_defaults
from payload.impala.schedule import annealed, near_goal, schedule
from payload.impala.update_settings import UpdateSettings
from payload.run.progress import Progress

STAY = {"num_envs_per_env_runner", "rollout_fragment_length"}
"""Of an env runner; what it has begun with stays."""
TEMPERATURE_POWER = 4
"""The power of the used share with which the temperature falls, most of it near the end: a policy
that is sampled sharply from early on explores less, and Breakout learned more slowly."""


def settings_for(
    experiment: Experiment, settings: CommonSettings, num_env_runners: int
) -> CommonSettings:
    """Returns the settings for this number of env runners; `settings` itself if it is theirs."""
    if num_env_runners == settings.num_env_runners:
        return settings
    return with_defaults(experiment, game_of(experiment) is not None, num_env_runners)


def settings_while_training(
    experiment: Experiment, settings: CommonSettings, num_env_runners: int
) -> CommonSettings:
    """Returns the settings for this number; each env runner keeps its games and fragments."""
    if isinstance(settings, Settings):
        kept = settings.model_dump(include=STAY)
        config = experiment.config.model_copy(update=kept)
        experiment = experiment.model_copy(update={"config": config})
    return settings_for(experiment, settings, num_env_runners)


def follow_scale(
    algorithm: Any, experiment: Experiment, settings: CommonSettings
) -> CommonSettings:
    """Returns the settings for the number of env runners of now; gives the train batch its size."""
    now = settings_while_training(experiment, settings, algorithm.config.num_env_runners)
    if now is not settings and isinstance(now, Settings):
        config = algorithm.config.copy(copy_frozen=False)
        config.train_batch_size_per_learner = now.train_batch_size_per_learner
        config.freeze()
        algorithm.config = config
    return now


def tell_learners(algorithm: Any, progress: Progress, stop: Stop, settings: CommonSettings) -> None:
    """Sets the UpdateSettings of every VTraceLearner; RLlib's own learner has no use for them."""
    if not isinstance(settings, Settings):
        return
    assert settings.train_batch_size_per_learner is not None  # It is filled in.
    used = progress.used(stop)
    left = 1.0 - used
    towards = progress.towards(stop)
    lr = schedule(settings.lr)
    if settings.lr_at_goal is not None:
        lr = annealed(lr, settings.lr_at_goal, near_goal(towards))
    update_settings = UpdateSettings(
        train_batch_size=settings.train_batch_size_per_learner,
        minibatch_size=settings.minibatch_size,
        lr=lr,
        lr_left=left if settings.anneal_lr else 1.0,
        entropy_coeff_left=left if settings.anneal_entropy_coeff else 1.0,
        temperature=annealed(1.0, settings.final_temperature, used**TEMPERATURE_POWER),
        progress=towards,
        used=used,
    )

    def tell(learner: Any) -> None:
        learner.update_settings = update_settings

    # 0: the training loop does not wait for learners on other nodes.
    algorithm.learner_group.foreach_learner(tell, timeout_seconds=0.0)
