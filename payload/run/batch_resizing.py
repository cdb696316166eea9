"""Adapts batch sizes to the number of env runners, and passes settings to the learners."""

from typing import Any

from payload.environments.atari import game_of
from payload.experiment.derived_defaults import with_defaults
from payload.experiment.fragment_settings import FragmentSettings
from payload.experiment.settings import Experiment, Stop
from payload.experiment.settings_of_every_algorithm import AlgorithmSettings
from payload.impala.schedule import update_settings
from payload.run.progress import Progress

STAY = {"num_envs_per_env_runner", "rollout_fragment_length"}
"""Settings that an env runner keeps from its start."""


def settings_for(
    experiment: Experiment, settings: AlgorithmSettings, num_env_runners: int
) -> AlgorithmSettings:
    """Returns the settings for this number of env runners; `settings` itself if unchanged."""
    if num_env_runners == settings.num_env_runners:
        return settings
    return with_defaults(experiment, game_of(experiment) is not None, num_env_runners)


def settings_while_training(
    experiment: Experiment, settings: AlgorithmSettings, num_env_runners: int
) -> AlgorithmSettings:
    """Returns the settings for this number; each env runner keeps its games and fragments."""
    if isinstance(settings, FragmentSettings):
        kept = settings.model_dump(include=STAY)
        config = experiment.config.model_copy(update=kept)
        experiment = experiment.model_copy(update={"config": config})
    return settings_for(experiment, settings, num_env_runners)


def resize_batches(
    algorithm: Any, experiment: Experiment, settings: AlgorithmSettings
) -> AlgorithmSettings:
    """Sets the train batch size for the current number of env runners; returns the settings."""
    now = settings_while_training(experiment, settings, algorithm.config.num_env_runners)
    if now is not settings and isinstance(now, FragmentSettings):
        config = algorithm.config.copy(copy_frozen=False)
        config.train_batch_size_per_learner = now.train_batch_size_per_learner
        config.freeze()
        algorithm.config = config
    return now


def tell_learners(
    algorithm: Any, progress: Progress, stop: Stop, settings: AlgorithmSettings
) -> None:
    """Sets the UpdateSettings of every FragmentLearner; RLlib's own learners do not use them."""
    if not isinstance(settings, FragmentSettings):
        return
    now = update_settings(settings, progress.towards(stop), progress.used(stop))

    def tell(learner: Any) -> None:
        learner.update_settings = now

    # 0: the training loop does not wait for learners on other nodes.
    algorithm.learner_group.foreach_learner(tell, timeout_seconds=0.0)
