"""Numbers that an environment's `info` has at the end of an episode, as metrics."""

import numbers
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np


@dataclass(frozen=True)
class InfoMetrics:
    """Which numbers are wanted, and which there were."""

    names: tuple[str, ...] = ()
    seen: set[str] = field(default_factory=set)
    """Names of all numbers at the ends of episodes so far."""

    def of(self, info: Mapping[str, Any]) -> dict[str, float]:
        """Returns the wanted numbers of an `info` at the end of an episode."""
        if not self.names:
            return {}
        values = {name: float(value) for name, value in info.items() if _is_number(value)}
        self.seen.update(values)
        return {name: values[name] for name in self.names if name in values}

    def at(self, infos: Mapping[str, Any], index: int) -> dict[str, float]:
        """The same for one environment of a vector, whose infos are arrays [N] with a mask [N]."""
        info = {}
        for name, values in infos.items() if self.names else ():
            has = infos.get(f"_{name}")
            if has is not None and has[index]:
                info[name] = values[index]
        return self.of(info)


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real | np.bool_)


class OwnInfo(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment whose infos stay its own business, but for metrics at an episode's end.

    Gymnasium joins the infos of all copies, which must not change their keys or shapes.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], metrics: InfoMetrics) -> None:
        super().__init__(env)
        self._metrics = metrics

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        observation, _ = self.env.reset(**kwargs)
        return observation, {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        over = terminated or truncated
        return observation, reward, terminated, truncated, self._metrics.of(info) if over else {}
