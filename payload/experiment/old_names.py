"""Today's names of the settings of older RLlib versions and of Azure ML's samples."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from payload.errors import UserError, nearest
from payload.experiment.search_space import SearchSpace
from payload.experiment.settings import EPISODE_RETURN_MEAN, SETTINGS, Algorithm

RENAMED_CONFIG = {
    "num_workers": "num_env_runners",
    "num_rollout_workers": "num_env_runners",
    "num_envs_per_worker": "num_envs_per_env_runner",
    "num_cpus_per_worker": "num_cpus_per_env_runner",
    "sample_batch_size": "rollout_fragment_length",
    "train_batch_size": "train_batch_size_per_learner",
    "num_sgd_iter": "num_epochs",
    "sgd_minibatch_size": "minibatch_size",
    "num_data_loader_buffers": "learner_queue_size",
    "num_multi_gpu_tower_stacks": "learner_queue_size",
    "max_sample_requests_in_flight_per_worker": "max_requests_in_flight_per_env_runner",
    "lambda": "lambda_",
    "lr_schedule": "lr",
    "entropy_coeff_schedule": "entropy_coeff",
    "min_iter_time_s": "min_time_s_per_iteration",
}
RENAMED_MODEL = {"dim": "image_size", "framestack": "frame_stack"}
RENAMED_STOP = {
    "episode_reward_mean": EPISODE_RETURN_MEAN,
    "episode_return_mean": EPISODE_RETURN_MEAN,
    "timesteps_total": "num_env_steps_sampled_lifetime",
}
IGNORED_CONFIG = {
    "framework": "RLlib's new API stack has torch only",
    "use_pytorch": "RLlib's new API stack has torch only",
    "eager": "RLlib's new API stack has torch only",
    "batch_mode": "every algorithm samples a fixed number of steps, as with truncate_episodes",
    "compress_observations": "volley compresses the frames of Atari games, and nothing else",
    "preprocessor_pref": "Atari games have the usual preprocessing, other environments none",
    "observation_filter": "there are no filters; the network scales images of bytes, and other "
    "observations are NOT normalized",
    "num_cpus_for_driver": "a driver outside Tune reserves no CPU",
    "num_gpus_per_worker": "the env runners' network is too small to gain from a GPU",
    "opt_type": "the optimizer is Adam",
    "decay": "belongs to RMSProp; the optimizer is Adam",
    "momentum": "belongs to RMSProp; the optimizer is Adam",
    "log_level": "RLlib's log goes to driver_log.txt in full",
}
IGNORED_BY_IMPALA = {
    "vtrace": "IMPALA and APPO always correct with V-trace",
    "sample_async": "env runners always sample asynchronously",
    "num_aggregation_workers": "fragments go to the learner directly",
    "minibatch_buffer_size": "num_epochs passes over a batch need no ring buffer",
    "learner_queue_timeout": "the learner waits for batches without a limit",
}
"""Other algorithms have no such settings."""
DURATION = "max_run_duration_seconds"
"""A key of Azure ML's ReinforcementLearningEstimator, beside run and env; now stop.time_total_s."""
RENAMED_NEEDS = {
    "conda_dependencies_file_path": "conda_dependencies_file",
    "pip_requirements_file_path": "pip_requirements_file",
}
"""Keys of Azure ML's older estimators, which experiments and scripts share."""
RMSPROP = frozenset({"opt_type", "decay", "momentum"})
"""Beside these, `epsilon` is RMSProp's too, as in RLlib's old IMPALA."""
IGNORED_MODEL = {
    "grayscale": "frames are always gray",
    "zero_mean": "the network scales pixels itself",
    "conv_filters": "the convolutions follow from the image's size",
    "free_log_std": "the network computes the deviation of continuous actions",
    "vf_share_layers": "policy and value always share their layers",
}


@dataclass
class Translated:
    """A section under today's names."""

    values: dict[str, Any] = field(default_factory=dict)
    given: dict[str, str] = field(default_factory=dict)
    """Today's name -> the older name that was given."""
    notes: list[str] = field(default_factory=list)
    """A line for each name that changed or is ignored."""


def translate_config(config: dict[str, Any], run: Algorithm = "IMPALA") -> Translated:
    """Returns the same settings of an algorithm under today's names.

    Raises:
        UserError: A setting is given under both its old and its new name, or cannot be
            searched.
    """
    _check_search(config, run)
    translated = Translated()

    def put(old: str, new: str, value: Any) -> None:
        _rename("config", translated, config, old, new, value)

    for key, value in config.items():
        if key in RENAMED_CONFIG:
            put(key, RENAMED_CONFIG[key], value)
        elif (reason := _reason_to_ignore(key, config, run)) is not None:
            translated.notes.append(f"config.{key} is ignored: {reason}")
        elif key == "num_gpus":
            num_learners, gpus_each = _learners_of_gpus(value)
            put("num_gpus", "num_learners", num_learners)
            put("num_gpus", "num_gpus_per_learner", gpus_each)
        elif key == "exploration_config":
            name, setting = _exploration(value, run, translated.notes)
            put(key, name, setting)
        elif key == "model" and isinstance(value, dict):
            for name, setting in value.items():
                if name in RENAMED_MODEL:
                    put(f"model.{name}", RENAMED_MODEL[name], setting)
                elif name in SETTINGS[run].model_fields:
                    put(f"model.{name}", name, setting)
                elif name in IGNORED_MODEL:
                    translated.notes.append(
                        f"config.model.{name} is ignored: {IGNORED_MODEL[name]}"
                    )
                else:
                    translated.values[f"model.{name}"] = setting
        else:
            translated.values[key] = value
    return translated


def _check_search(config: dict[str, Any], run: Algorithm) -> None:
    """Raises UserError for a search over an older name that is not a single setting today."""
    settings = SETTINGS[run].model_fields
    model = config.get("model")
    inner = model if isinstance(model, dict) else {}
    ignored = {f"model.{name}": reason for name, reason in IGNORED_MODEL.items()}
    ignored |= {key: reason for key, reason in _ignored(run).items() if key not in settings}
    for key, value in {**config, **{f"model.{k}": v for k, v in inner.items()}}.items():
        if not isinstance(value, SearchSpace):
            continue
        if key in ignored:
            raise UserError(f"config.{key}: cannot be searched: it has no effect; {ignored[key]}")
        if key in ("num_gpus", "model", "exploration_config"):
            raise UserError(f"config.{key}: cannot be searched; only single settings can")


def _reason_to_ignore(key: str, config: dict[str, Any], run: Algorithm) -> str | None:
    if key == "epsilon" and RMSPROP & config.keys():
        return IGNORED_CONFIG["decay"]
    return None if key in SETTINGS[run].model_fields else _ignored(run).get(key)


def _ignored(run: Algorithm) -> dict[str, str]:
    """Returns the reason of each key of `config` that an algorithm ignores."""
    if run in ("IMPALA", "APPO"):
        return IGNORED_CONFIG | IGNORED_BY_IMPALA
    return IGNORED_CONFIG | dict.fromkeys(IGNORED_BY_IMPALA, f"{run} has no such setting")


def _exploration(given: Any, run: Algorithm, notes: list[str]) -> tuple[str, Any]:
    """Returns the setting that replaces RLlib's old exploration_config, and its value.

    Raises:
        UserError: EpsilonGreedy has an unknown key or a wrong value.
    """
    values = given if isinstance(given, dict) else {"type": given}
    kind = values.get("type", "EpsilonGreedy" if run == "DQN" else "StochasticSampling")
    if kind == "EpsilonGreedy" and "epsilon" in SETTINGS[run].model_fields:
        return "epsilon", _epsilon_greedy(values, run)
    if kind != "StochasticSampling":
        notes.append(f"config.exploration_config.type {kind} is ignored: {run} samples actions")
    return "explore", True


def _epsilon_greedy(given: dict[str, Any], run: Algorithm) -> list[list[Any]]:
    """Returns the schedule of RLlib's old class EpsilonGreedy, with its defaults."""
    values: dict[str, Any] = {
        "initial_epsilon": 1.0,
        "final_epsilon": 0.02 if run == "DQN" else 0.05,
        "warmup_timesteps": 0,
        "epsilon_timesteps": 10_000 if run == "DQN" else 100_000,
    }
    for key, value in given.items():
        if key == "type":
            continue
        if key not in values:
            raise UserError(f"config.exploration_config.{key}: unknown key{nearest(key, values)}")
        whole = key.endswith("_timesteps")
        if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
            raise UserError(
                f"config.exploration_config.{key}: {value!r} is not a "
                f"{'whole number of environment steps' if whole else 'number'}"
            )
        values[key] = value
    first, last = float(values["initial_epsilon"]), float(values["final_epsilon"])
    begin, steps = values["warmup_timesteps"], values["epsilon_timesteps"]
    start = [[0, first]] if begin else []
    return [*start, [begin, first], [begin + max(1, steps), last]]


def translate_stop(stop: dict[str, Any]) -> Translated:
    """Returns the stop criteria under today's names.

    Raises:
        UserError: A criterion is given under both its old and its new name.
    """
    translated = Translated()
    for key, value in stop.items():
        if key in RENAMED_STOP:
            _rename("stop", translated, stop, key, RENAMED_STOP[key], value)
        else:
            translated.values[key] = value
    return translated


def translate_needs(values: Mapping[str, Any]) -> Translated:
    """Returns the keys of a file, beside `config` and `stop`, under today's names.

    Raises:
        UserError: A key is given under both its old and its new name.
    """
    translated = Translated()
    for key, value in values.items():
        if (new := RENAMED_NEEDS.get(key)) is None:
            translated.values[key] = value
        elif new in values:
            raise UserError(f"{key}: {new} is set too; keep one of the two")
        else:
            translated.values[new] = value
            translated.notes.append(f"{key} is now {new}: {value}")
    return translated


def old_names_of(section: str, key: str) -> list[str]:
    """Returns the older names that an unknown key of a section may mean."""
    if section == "stop":
        return list(RENAMED_STOP)
    if key.startswith("model."):
        return [f"model.{name}" for name in (*RENAMED_MODEL, *IGNORED_MODEL)]
    return (
        [*RENAMED_CONFIG, *IGNORED_CONFIG, *IGNORED_BY_IMPALA]
        if section == "config"
        else [DURATION, *RENAMED_NEEDS]
    )


def _rename(
    section: str, translated: Translated, given: dict[str, Any], old: str, new: str, value: Any
) -> None:
    if new in given or new in translated.values:
        raise UserError(f"{section}.{old}: {new} is set too; keep one of the two")
    translated.values[new] = value
    translated.given[new] = old
    translated.notes.append(f"{section}.{old} is now {new}: {value}")


def _learners_of_gpus(num_gpus: Any) -> tuple[int, float]:
    """Returns learners and GPUs of each: one per GPU or part of one; none if the driver trains."""
    if (
        isinstance(num_gpus, bool)
        or not isinstance(num_gpus, int | float)
        or not 0 <= num_gpus < math.inf
    ):
        raise UserError(f"config.num_gpus: {num_gpus!r} is not a number of GPUs (0, 1, 2 ...)")
    if 0 < num_gpus < 1:
        return 1, float(num_gpus)
    if num_gpus != int(num_gpus):
        raise UserError(f"config.num_gpus: {num_gpus} is neither whole nor less than 1")
    return int(num_gpus), 1.0 if num_gpus else 0.0
