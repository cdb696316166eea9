"""Defaults that depend on the algorithm, the environment or the number of env runners."""

from typing import Any

from payload.experiment.ale_words import notes_on_game
from payload.experiment.batch_sizes import LAPTOP, BatchSizes, batch_sizes_for
from payload.experiment.fragment_settings import (
    MINIBATCH_STEPS,
    TRAJECTORY_SIZES,
    ByAlgorithm,
    FragmentSettings,
)
from payload.experiment.impala_settings import ImpalaSettings
from payload.experiment.pqn_settings import PQNSettings
from payload.experiment.settings import Algorithm, Experiment
from payload.experiment.settings_of_every_algorithm import (
    AlgorithmSettings,
    AtariOnly,
    ByEnvironment,
    OtherOnly,
)


def with_defaults(
    experiment: Experiment, atari: bool, num_env_runners: int | None = None
) -> AlgorithmSettings:
    """Returns the experiment's settings with every default filled in.

    Args:
        atari: Whether the environment takes the Atari fast path.
        num_env_runners: The result of `placement.place`; None leaves the setting as it is.
    """
    given = experiment.config
    filled: dict[str, Any] = {"info_metrics": []} if atari else {}
    if num_env_runners is not None:
        filled["num_env_runners"] = num_env_runners
    for name, field in type(given).model_fields.items():
        if getattr(given, name) is not None:
            continue
        for default in field.metadata:
            if isinstance(default, ByEnvironment | ByAlgorithm):
                filled[name] = _default_for(default, experiment.run, atari)
    if isinstance(given, FragmentSettings):
        scale = batch_sizes_for(num_env_runners or 0) if atari else LAPTOP
        filled |= _scaled(given, MINIBATCH_STEPS[experiment.run] if atari else None, scale)
        if atari:
            filled["image_width"] = given.image_width or given.image_size
        if given.anneal_lr is None:
            filled["anneal_lr"] = atari and given.lr is None
        if given.lr is None:
            filled["lr"] *= scale.lr_factor
    if isinstance(given, ImpalaSettings):
        _fill_coefficients(given, filled, atari)
    return given.model_copy(update=filled)


def _fill_coefficients(given: ImpalaSettings, filled: dict[str, Any], atari: bool) -> None:
    if given.anneal_entropy_coeff is None:
        filled["anneal_entropy_coeff"] = atari and given.entropy_coeff is None
    if given.entropy_coeff is not None:
        filled["uniform_kl_coeff"] = given.uniform_kl_coeff or 0.0
    if given.uniform_kl_coeff is not None:
        filled.pop("uniform_kl_coeff_at_goal", None)


def _default_for(default: Any, run: Algorithm, atari: bool) -> Any:
    if isinstance(default, ByEnvironment):
        return _default_for(default.atari if atari else default.other, run, atari)
    return getattr(default, run.lower()) if isinstance(default, ByAlgorithm) else default


def _scaled(
    given: FragmentSettings, minibatch_steps: int | None, scale: BatchSizes
) -> dict[str, Any]:
    """Returns the sizes of batches, fragments and minibatches.

    If one of TRAJECTORY_SIZES is given, games and fragment length do not follow the scale.

    Args:
        minibatch_steps: Steps of a minibatch on a laptop; None for the whole train batch.
    """
    filled: dict[str, Any] = {}
    if not given.model_fields_set & TRAJECTORY_SIZES:
        filled["num_envs_per_env_runner"] = scale.num_envs_per_env_runner
        filled["rollout_fragment_length"] = scale.rollout_fragment_length
    sizes = given.model_copy(update=filled)
    learners = max(1, given.num_learners)
    if given.minibatch_size is None and minibatch_steps is not None:
        length = sizes.rollout_fragment_length
        rows = max(1, round(minibatch_steps * scale.factor / learners / length))
        filled["minibatch_size"] = rows * length
    # RLlib collects whole fragments for all learners together and then divides them: a learner with
    # fewer fragments than another would stall both.
    fragments = max(1, scale.factor // learners)
    if given.train_batch_size_per_learner is not None:
        fragments = -(-given.train_batch_size_per_learner // sizes.fragment_steps)
    filled["train_batch_size_per_learner"] = fragments * sizes.fragment_steps
    return filled


def notes_on_defaults(experiment: Experiment, atari: bool) -> list[str]:
    """Returns a line for each given setting that has no effect, or not the requested one."""
    given = experiment.config
    asked = given.train_batch_size_per_learner
    size = with_defaults(experiment, atari).train_batch_size_per_learner
    notes = []
    if given.evaluation_interval is None:
        notes += [
            f"config.{name} is ignored: evaluation_interval is not set"
            for name in ("evaluation_duration", "evaluation_num_env_runners")
            if name in given.model_fields_set
        ]
    if isinstance(given, FragmentSettings) and asked not in (None, size):
        notes.append(
            f"config.train_batch_size_per_learner is now {size}: "
            f"whole rollout fragments of {given.fragment_steps} environment steps"
        )
    if experiment.run == "IMPALA":
        notes += [
            f"config.{name} is ignored: IMPALA's loss has no such term; APPO's does"
            for name in ("clip_param", "use_kl_loss", "kl_coeff", "kl_target")
            if name in given.model_fields_set
        ]
    if isinstance(given, PQNSettings) and not (given.explore and given.epsilon):
        notes.append(
            "PQN explores with random actions only: without epsilon, or with explore false, it "
            "always takes the action that it values most"
        )
    if atari:
        notes += notes_on_game(given.env_config)
        if isinstance(given, FragmentSettings) and experiment.stop.only_time:
            notes.append(
                "stop.time_total_s is the only limit: annealing follows the clock, so the result "
                "depends on the machine's speed; with num_env_steps_sampled_lifetime it follows "
                "the environment steps"
            )
        if given.info_metrics:
            notes.append("config.info_metrics is ignored: an Atari game has no such numbers")
        notes += [
            f"config.{name} is ignored: {experiment.env} is an Atari game, which "
            f"{experiment.run} learns with a loss and a network of volley's own"
            for name in _marked(given, OtherOnly)
        ]
    else:
        notes += [
            f"config.{name} is ignored: {experiment.env} is not an Atari game, and "
            "RLlib's own env runner and learner train it"
            for name in for_atari_only(given)
        ]
    return notes


def for_atari_only(given: AlgorithmSettings) -> list[str]:
    """Returns the given settings that have no effect on other environments."""
    return _marked(given, AtariOnly)


def _marked(given: AlgorithmSettings, marker: type[AtariOnly] | type[OtherOnly]) -> list[str]:
    fields = type(given).model_fields
    return [
        name
        for name, field in fields.items()
        if marker in field.metadata and name in given.model_fields_set
    ]
