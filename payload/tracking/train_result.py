"""RLlib's result of a training iteration, read into a dataclass."""

import math
from typing import Any

import numpy as np
from ray.rllib.utils.metrics import (
    ALL_MODULES,
    ENV_RUNNER_RESULTS,
    EPISODE_LEN_MEAN,
    EPISODE_RETURN_MEAN,
    EVALUATION_RESULTS,
    LEARNER_RESULTS,
    NUM_ENV_STEPS_SAMPLED,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
    NUM_ENV_STEPS_TRAINED_LIFETIME,
    NUM_EPISODES_LIFETIME,
)

from payload.environments.checked_vector import EPISODE_LENGTHS, EPISODE_RETURNS, INFO
from payload.impala.atari_env_runner import RETURN_SO_FAR_MAX, RETURN_SO_FAR_MIN, REWARDS_SAMPLED
from payload.tracking.metrics import METRICS
from payload.tracking.report import MEAN_OVER, TrainResult


def train_result(result: dict[str, Any]) -> TrainResult:
    """Reads what `Algorithm.train` returned; a count that it lacks is None."""
    sampled = result.get(ENV_RUNNER_RESULTS, {})
    learners = result.get(LEARNER_RESULTS, {})
    evaluation = result.get(EVALUATION_RESULTS, {}).get(ENV_RUNNER_RESULTS, {})
    episodes = _count(sampled, NUM_EPISODES_LIFETIME)
    return TrainResult(
        env_steps=_count(sampled, NUM_ENV_STEPS_SAMPLED_LIFETIME),
        env_steps_trained=_count(learners.get(ALL_MODULES, {}), NUM_ENV_STEPS_TRAINED_LIFETIME),
        episodes=episodes,
        rewards_sampled=float(sampled.get(REWARDS_SAMPLED, math.nan)),
        steps_sampled=float(sampled.get(NUM_ENV_STEPS_SAMPLED, math.nan)),
        return_so_far_min=float(sampled.get(RETURN_SO_FAR_MIN, math.nan)),
        return_so_far_max=float(sampled.get(RETURN_SO_FAR_MAX, math.nan)),
        returns=_episodes(sampled, EPISODE_RETURNS, EPISODE_RETURN_MEAN, episodes or 0),
        lengths=_episodes(sampled, EPISODE_LENGTHS, EPISODE_LEN_MEAN, episodes or 0),
        info={name: _series(sampled.get(INFO, {}), name) for name in sampled.get(INFO, {})},
        values=_values(result),
        evaluation_returns=_series(evaluation, EPISODE_RETURNS),
        evaluation_lengths=_series(evaluation, EPISODE_LENGTHS),
    )


def _count(section: dict[str, Any], key: str) -> int | None:
    value = section.get(key, math.nan)
    return None if math.isnan(value) else int(value)


def _episodes(section: dict[str, Any], each: str, mean: str, episodes: int) -> list[float]:
    """Returns each finished episode's value; RLlib's env runner gives the mean of the last 100."""
    if each in section:
        return _series(section, each)
    value = section.get(mean, math.nan)
    return [] if math.isnan(value) else [float(value)] * min(MEAN_OVER, episodes)


def _series(section: dict[str, Any], each: str) -> list[float]:
    # An empty series arrives as NaN.
    values = np.atleast_1d(section.get(each, math.nan))
    return [float(value) for value in values if not math.isnan(value)]


def _values(result: dict[str, Any]) -> dict[str, float]:
    """Returns the metrics that the result has under their own names."""
    values = {}
    for metric in METRICS:
        value = _at(result, metric.name)
        if value is None and metric.instead:
            value = _at(result, metric.instead)
        if metric.of is None and value is not None:
            values[metric.name] = float(value)
    return values


def _at(result: Any, path: str) -> Any:
    for key in path.split("/"):
        result = result.get(key) if isinstance(result, dict) else None
    return result
