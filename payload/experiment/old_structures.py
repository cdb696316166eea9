"""Older keys of `config` whose value is today's value of another kind."""

import math
from typing import Any

from payload.errors import UserError, nearest
from payload.experiment.settings import SETTINGS, Algorithm
from payload.experiment.written_numbers import whole_number


def exploration(given: Any, run: Algorithm, notes: list[str]) -> tuple[str, Any]:
    """Returns the setting that replaces RLlib's old exploration_config, and its value.

    Raises:
        UserError: EpsilonGreedy has an unknown key or a wrong value.
    """
    values = given if isinstance(given, dict) else {"type": given}
    kind = values.get("type", "EpsilonGreedy" if run in ("DQN", "PQN") else "StochasticSampling")
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
    for key, written in given.items():
        if key == "type":
            continue
        if key not in values:
            raise UserError(f"config.exploration_config.{key}: unknown key{nearest(key, values)}")
        whole = key.endswith("_timesteps")
        value = whole_number(written) if whole else written
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


def learners_of_gpus(key: str, num_gpus: Any) -> tuple[int, float]:
    """Returns learners and GPUs of each: one per GPU or part of one; none if the driver trains."""
    if (
        isinstance(num_gpus, bool)
        or not isinstance(num_gpus, int | float)
        or not 0 <= num_gpus < math.inf
    ):
        raise UserError(f"config.{key}: {num_gpus!r} is not a number of GPUs (0, 1, 2 ...)")
    if 0 < num_gpus < 1:
        return 1, float(num_gpus)
    if num_gpus != int(num_gpus):
        raise UserError(f"config.{key}: {num_gpus} is neither whole nor less than 1")
    return int(num_gpus), 1.0 if num_gpus else 0.0
