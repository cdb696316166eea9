"""Settings of older RLlib versions and of Azure ML's samples: what each is called today."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from payload.errors import UserError
from payload.experiment.settings import EPISODE_RETURN_MEAN

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
    "vtrace": "IMPALA and APPO always correct with V-trace",
    "batch_mode": "rollout fragments always have a fixed length",
    "sample_async": "env runners always sample asynchronously",
    "compress_observations": "each frame crosses the network once, not stacked",
    "preprocessor_pref": "the emulator does the usual Atari preprocessing itself",
    "observation_filter": "the module normalises pixels itself",
    "num_cpus_for_driver": "a driver outside Tune reserves no CPU",
    "num_gpus_per_worker": "the env runners' network is too small to gain from a GPU",
    "num_aggregation_workers": "fragments go to the learner directly",
    "replay_proportion": "the new API stack's IMPALA has no replay",
    "replay_buffer_num_slots": "the new API stack's IMPALA has no replay",
    "minibatch_buffer_size": "num_epochs passes over a batch need no ring buffer",
    "learner_queue_timeout": "the learner waits for batches without a limit",
    "opt_type": "the optimizer is Adam",
    "decay": "belongs to RMSProp; the optimizer is Adam",
    "momentum": "belongs to RMSProp; the optimizer is Adam",
    "epsilon": "belongs to RMSProp; the optimizer is Adam",
    "log_level": "RLlib's log goes to driver_log.txt in full",
}
IGNORED_MODEL = {
    "grayscale": "frames are always gray",
    "zero_mean": "the module normalises pixels itself",
    "conv_filters": "the module's convolutions are fixed",
    "free_log_std": "belongs to continuous actions",
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


def translate_config(config: dict[str, Any]) -> Translated:
    """Returns the same settings under today's names.

    Raises:
        UserError: A setting stands there twice, under its old and its new name.
    """
    found = Translated()

    def put(old: str, new: str, value: Any) -> None:
        _rename("config", found, config, old, new, value)

    for key, value in config.items():
        if key in RENAMED_CONFIG:
            put(key, RENAMED_CONFIG[key], value)
        elif key in IGNORED_CONFIG:
            found.notes.append(f"config.{key} is ignored: {IGNORED_CONFIG[key]}")
        elif key == "num_gpus":
            num_learners, gpus_each = _learners_of_gpus(value)
            put("num_gpus", "num_learners", num_learners)
            put("num_gpus", "num_gpus_per_learner", gpus_each)
        elif key == "exploration_config":
            kind = value.get("type") if isinstance(value, dict) else value
            if kind != "StochasticSampling":
                found.notes.append(
                    f"config.exploration_config.type {kind} is ignored: "
                    "a policy gradient explores by sampling from its policy"
                )
            put("exploration_config", "explore", True)
        elif key == "model" and isinstance(value, dict):
            for name, setting in value.items():
                if name in RENAMED_MODEL:
                    put(f"model.{name}", RENAMED_MODEL[name], setting)
                elif name in IGNORED_MODEL:
                    found.notes.append(f"config.model.{name} is ignored: {IGNORED_MODEL[name]}")
                else:
                    found.values[f"model.{name}"] = setting
        else:
            found.values[key] = value
    return found


def translate_stop(stop: dict[str, Any]) -> Translated:
    """Returns the stop criteria under today's names.

    Raises:
        UserError: A criterion stands there twice, under its old and its new name.
    """
    found = Translated()
    for key, value in stop.items():
        if key in RENAMED_STOP:
            _rename("stop", found, stop, key, RENAMED_STOP[key], value)
        else:
            found.values[key] = value
    return found


def old_names_of(section: str, key: str) -> list[str]:
    """Returns the older names that may be meant by an unknown key of a section."""
    if section == "stop":
        return list(RENAMED_STOP)
    if key.startswith("model."):
        return [f"model.{name}" for name in (*RENAMED_MODEL, *IGNORED_MODEL)]
    return [*RENAMED_CONFIG, *IGNORED_CONFIG] if section == "config" else []


def _rename(
    section: str, found: Translated, given: dict[str, Any], old: str, new: str, value: Any
) -> None:
    if new in given or new in found.values:
        raise UserError(f"{section}.{old}: {new} is set too; keep one of the two")
    found.values[new] = value
    found.given[new] = old
    found.notes.append(f"{section}.{old} is now {new}: {value}")


def _learners_of_gpus(num_gpus: Any) -> tuple[int, float]:
    """One learner for each GPU; a part of a GPU is one learner's; none: train in the driver."""
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
