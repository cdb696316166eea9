"""What an experiment leaves open: filled in from the algorithm, the game and the cluster."""

from __future__ import annotations

from typing import Any

from payload.errors import UserError, nearest
from payload.experiment.settings import Experiment, Settings
from payload.impala.atari import AtariSettings, atari_settings

FAST_PATH_ONLY = (
    "image_size",
    "frame_stack",
    "clip_rewards",
    "end_return_at_lost_life",
    "lambda_",
    "normalize_advantages",
    "uniform_kl_coeff",
    "uniform_kl_coeff_at_goal",
    "fcnet_hidden",
)
"""Settings that RLlib's own env runner, learner and module do not have."""

FAST_PATH_DEFAULTS = {
    "lr": 1e-3,
    "vf_loss_coeff": 4.0,
    "entropy_coeff": 0.0,
    "uniform_kl_coeff": 0.03,
}
"""Pong is deterministic: a policy that becomes so plays a cycle for ever in which it loses every
other point. KL to the uniform policy keeps every action alive; entropy gives an unlikely one up.

Values err by a tenth or two where normalised advantages are about 1: with RLlib's vf_loss_coeff of
.5 they learn so slowly that some runs stand still, near a return of 0 or of 16, for half a million
agent steps."""
STANDARD_PATH_DEFAULTS = {"lr": 5e-4, "vf_loss_coeff": 0.5, "entropy_coeff": 0.01}
"""RLlib's own, where its learner trains: no uniform_kl_coeff, and rewards as they are."""
ALGORITHM_DEFAULTS = {
    "IMPALA": {"uniform_kl_coeff_at_goal": 0.004, "num_epochs": 1},
    "APPO": {"uniform_kl_coeff_at_goal": 0.002, "num_epochs": 2},
}
MINIBATCH_ROWS = {"IMPALA": 4, "APPO": 8}
"""Trajectories in one gradient step: a plain policy gradient learns faster from many small ones."""


def resolve_settings(
    experiment: Experiment, num_cpus: int, num_gpus: float | None = None
) -> Settings:
    """Fills in what the experiment leaves to the algorithm or to the cluster.

    Args:
        num_cpus: CPUs of the Ray cluster.
        num_gpus: Its GPUs; None while they are not known.

    Raises:
        UserError: More env runners and learners than the cluster has CPUs for.
    """
    settings = experiment.config
    learner_cpus = settings.num_learners if settings.num_gpus_per_learner == 0 else 0
    room = max(0, num_cpus - learner_cpus) // settings.num_cpus_per_env_runner
    filled: dict[str, Any] = {
        "num_env_runners": max(1, room),
        **ALGORITHM_DEFAULTS[experiment.run],
        "minibatch_size": MINIBATCH_ROWS[experiment.run] * settings.rollout_fragment_length,
    }
    if game_of(experiment) is None:
        filled |= STANDARD_PATH_DEFAULTS
    else:
        filled |= FAST_PATH_DEFAULTS
        if settings.entropy_coeff is not None:
            filled["uniform_kl_coeff"] = 0.0
    if settings.uniform_kl_coeff is not None:
        del filled["uniform_kl_coeff_at_goal"]
    filled = {key: value for key, value in filled.items() if getattr(settings, key) is None}
    # RLlib collects whole fragments for all learners together and then divides them: one with fewer
    # fragments than another would halt both.
    asked = settings.train_batch_size_per_learner or 1
    num_fragments = -(-asked // settings.fragment_steps)
    filled["train_batch_size_per_learner"] = num_fragments * settings.fragment_steps
    settings = settings.model_copy(update=filled)
    assert settings.num_env_runners is not None
    if learner_cpus > num_cpus:
        raise UserError(
            f"config.num_learners: {learner_cpus} is more than the cluster's {num_cpus} CPUs"
        )
    learner_gpus = max(1, settings.num_learners) * settings.num_gpus_per_learner
    if num_gpus is not None and learner_gpus > num_gpus:
        raise UserError(
            f"config.num_gpus: {learner_gpus:g} is more than the cluster's {num_gpus:g} GPUs"
        )
    if settings.num_env_runners > room:
        raise UserError(
            f"config.num_env_runners: {settings.num_env_runners} is more than the {room} that fit "
            f"on the cluster ({num_cpus} CPUs, {learner_cpus} of them for learners, "
            f"{settings.num_cpus_per_env_runner} for each env runner)"
        )
    return settings


def game_of(experiment: Experiment) -> AtariSettings | None:
    """Returns the game's settings where the fast path applies, None elsewhere.

    Raises:
        UserError: env_config overrides something that AtariSettings does not have.
    """
    game = atari_settings(experiment.env, experiment.config.image_size)
    if game is None:
        return None
    values = {**game.env_config(), "frame_stack": experiment.config.frame_stack}
    for key, value in experiment.config.env_config.items():
        if key not in values or key == "game":
            raise UserError(f"config.env_config.{key}: unknown key{nearest(key, values)}")
        whole = isinstance(values[key], float) and type(value) is int
        if type(value) is not type(values[key]) and not whole:
            raise UserError(
                f"config.env_config.{key}: {value!r} is no {type(values[key]).__name__}"
            )
        values[key] = value
    return AtariSettings(**values)


def train_batch_filled_up(experiment: Experiment, settings: Settings) -> list[str]:
    """Returns a line if the train batch asked for had to be filled up to whole fragments."""
    asked, size = (s.train_batch_size_per_learner for s in (experiment.config, settings))
    if asked is None or asked == size:
        return []
    return [
        f"config.train_batch_size_per_learner is now {size}: "
        f"whole fragments of {settings.fragment_steps} agent steps"
    ]


def ignored_on_standard_path(experiment: Experiment) -> list[str]:
    """Returns a line for each setting given that RLlib's standard env runner has no use for."""
    if game_of(experiment) is not None:
        return []
    return [
        f"config.{key} is ignored: {experiment.env} is no Atari game and runs on RLlib's own path"
        for key in FAST_PATH_ONLY
        if key in experiment.config.model_fields_set
    ]
