"""Settings that follow the number of env runners, and what learners are told of them."""

from __future__ import annotations

from typing import Any

from payload.experiment.common_settings import CommonSettings
from payload.experiment.settings import Experiment, Settings, Stop, with_defaults
from payload.impala.atari import game_of
from payload.impala.schedule import schedule
from payload.run.progress import Progress


def settings_for(
    experiment: Experiment, settings: CommonSettings, num_env_runners: int
) -> CommonSettings:
    """Returns the settings for this number of env runners; `settings` itself if it is theirs."""
    if num_env_runners == settings.num_env_runners:
        return settings
    return with_defaults(experiment, game_of(experiment) is not None, num_env_runners)


def follow_scale(
    algorithm: Any, experiment: Experiment, settings: CommonSettings
) -> CommonSettings:
    """Returns the settings for the number of env runners of now; gives the train batch its size.

    An env runner's games and the length of its fragments stay as they began.
    """
    now = settings_for(experiment, settings, algorithm.config.num_env_runners)
    if now is settings or not isinstance(now, Settings):
        return now
    assert isinstance(settings, Settings)
    config = algorithm.config.copy(copy_frozen=False)
    config.train_batch_size_per_learner = now.train_batch_size_per_learner
    config.freeze()
    algorithm.config = config
    trajectories = ("num_envs_per_env_runner", "rollout_fragment_length")
    return now.model_copy(update={name: getattr(settings, name) for name in trajectories})


def tell_learners(algorithm: Any, progress: Progress, stop: Stop, settings: CommonSettings) -> None:
    """Sets what VTraceLearner follows, on every learner; RLlib's own learner has no use for it."""
    values: dict[str, Any] = {"progress": progress.towards(stop)}
    if isinstance(settings, Settings):
        left = 1.0 - progress.used(stop)
        values |= {
            "minibatch_size": settings.minibatch_size,
            "lr": schedule(settings.lr),
            "lr_left": left if settings.anneal_lr else 1.0,
            "entropy_coeff_left": left if settings.anneal_entropy_coeff else 1.0,
        }

    def tell(learner: Any) -> None:
        for name, value in values.items():
            setattr(learner, name, value)

    # 0: the training loop does not wait for learners on other nodes.
    algorithm.learner_group.foreach_learner(tell, timeout_seconds=0.0)
