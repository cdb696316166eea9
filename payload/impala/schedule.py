"""Schedules as RLlib wants them."""

from __future__ import annotations

from typing import Any

import numpy as np

NOT_ANNEALED = 1 / 6
"""The share of a run's limit after which `near_limit` anneals."""


def schedule(value: Any) -> Any:
    """Returns a schedule as RLlib wants it: a number, or lists whose first step is 0."""
    if value is None or isinstance(value, int | float):
        return value
    points = [list(point) for point in value]
    if len(points) == 1:
        return points[0][1]
    return points if points[0][0] == 0 else [[0, points[0][1]], *points]


def value_at(given: float | list[list[float]], env_steps: int) -> float:
    """Returns the value that a schedule of `schedule` has after so many environment steps."""
    if isinstance(given, int | float):
        return given
    steps, values = zip(*given, strict=True)
    return float(np.interp(env_steps, steps, values))


def near_goal(progress: float) -> float:
    """Returns how far a coefficient is annealed, in [0, 1]: most of it near the goal.

    In Pong a policy that becomes deterministic halfway stays in its cycle.
    """
    return progress**4


def near_limit(used: float) -> float:
    """Returns how far a coefficient is annealed, in [0, 1]: evenly, after a sixth of the limit.

    Most runs reach a return goal that is within reach in that sixth, where `near_goal` is alone.
    """
    return max(0.0, used - NOT_ANNEALED) / (1.0 - NOT_ANNEALED)


def annealed(start: float, at_goal: float | None, fraction: float) -> float:
    """Returns a coefficient that is annealed geometrically to `at_goal`, at a fraction in [0, 1].

    `at_goal` must be positive; None anneals nothing.
    """
    if at_goal is None or start == 0:
        return start
    return float(start * (at_goal / start) ** fraction)
