"""How env runners report finished episodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ray.rllib.utils.metrics import (
    EPISODE_LEN_MEAN,
    EPISODE_RETURN_MEAN,
    NUM_EPISODES,
    NUM_EPISODES_LIFETIME,
)

from payload.environments.checked_vector import FinishedEpisode

EPISODE_RETURNS = "episode_returns"
EPISODE_LENGTHS = "episode_lengths"
"""Every finished episode's return and length in environment steps, one by one. RLlib's own
EPISODE_RETURN_MEAN is a mean of means of unequal weight, not the mean of the last 100."""


def log_episodes(metrics: Any, finished: Sequence[FinishedEpisode], window: int) -> None:
    """Logs finished episodes on an env runner's metrics logger.

    Args:
        window: Episodes in RLlib's own means.
    """
    for episode in finished:
        metrics.log_value(EPISODE_RETURNS, episode.episode_return, reduce="item_series")
        metrics.log_value(EPISODE_LENGTHS, episode.length, reduce="item_series")
        metrics.log_value(EPISODE_RETURN_MEAN, episode.episode_return, window=window)
        metrics.log_value(EPISODE_LEN_MEAN, episode.length, window=window)
    metrics.log_value(NUM_EPISODES, len(finished), reduce="sum")
    metrics.log_value(NUM_EPISODES_LIFETIME, len(finished), reduce="lifetime_sum")
