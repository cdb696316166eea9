"""Numbers of `info` at the end of an episode."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv

from payload.environments.checked_vector import CheckedVector
from payload.environments.info_metrics import InfoMetrics, OwnInfo


class Telling(gymnasium.Env[Any, Any]):
    """Episodes of `length` steps, whose infos tell more at the end."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (1,))
    action_space: gymnasium.spaces.Space[Any] = gymnasium.spaces.Discrete(2)

    def __init__(self, length: int) -> None:
        self.length = length

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        over = self.steps == self.length
        info = {"success": np.bool_(True), "distance": 2.5 * self.length, "who": "me"}
        return np.zeros(1, np.float32), 1.0, over, False, info if over else {"steps": [self.steps]}


@pytest.mark.parametrize("wrapped", [True, False], ids=["copies", "a vector of the package's own"])
def test_an_episode_has_the_numbers_of_its_last_info(wrapped: bool) -> None:
    metrics = InfoMetrics(("success", "distance", "missing"))

    def make(length: int) -> gymnasium.Env[Any, Any]:
        return OwnInfo(Telling(length), metrics) if wrapped else Telling(length)

    vector = CheckedVector(SyncVectorEnv([lambda: make(2), lambda: make(3)]), info_metrics=metrics)
    vector.reset()
    for _ in range(3):
        vector.step(np.zeros(2, np.int64))
    assert [episode.info for episode in vector.finished] == [
        {"success": 1.0, "distance": 5.0},
        {"success": 1.0, "distance": 7.5},
    ]
    assert metrics.seen >= {"success", "distance"}
    assert "who" not in metrics.seen


def test_without_metrics_nothing_is_kept() -> None:
    metrics = InfoMetrics()
    assert metrics.of({"success": 1.0}) == {}
    assert not metrics.seen
