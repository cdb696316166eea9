"""Settings of an update that change while a run progresses: schedules, annealing, sizes."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from payload.experiment.fragment_settings import FragmentSettings
from payload.experiment.impala_settings import ImpalaSettings

NOT_ANNEALED = 1 / 6
"""The share of a run's limit after which `near_limit` anneals."""
TEMPERATURE_POWER = 4
"""The temperature falls with this power of the used share, mostly near the end: a policy that is
sampled sharply from early on explores less, and Breakout learned more slowly."""

GREEDY = 1e-6
"""The temperature of Q-learning: env runners take the best action unless epsilon draws another."""


@dataclass(frozen=True)
class UpdateSettings:
    """Settings of the updates from now on; the driver sets them on every learner.

    They travel with a train batch through a learner's queue. Otherwise several learners would
    change them at different updates, and stall or drift apart.
    """

    train_batch_size: int
    """Environment steps of a learner's share of a train batch."""
    minibatch_size: int | None
    """Environment steps of a gradient step; None for the whole train batch."""
    lr: float | list[list[float]]
    """A number or a schedule."""
    lr_left: float = 1.0
    """The share of lr that annealing has left, in [0, 1]."""
    entropy_coeff_left: float = 1.0
    """The share of entropy_coeff that annealing has left, in [0, 1]."""
    temperature: float = 1.0
    """The softmax temperature with which env runners sample from this update's weights."""
    progress: float = 0.0
    """How far the run is on its way to the nearest stop criterion, in [0, 1]."""
    used: float = 0.0
    """The share of the time, steps or iterations that is used, in [0, 1]."""


def update_settings(settings: FragmentSettings, progress: float, used: float) -> UpdateSettings:
    """Returns the settings that updates use from now on.

    Args:
        settings: With every default filled in, for the current number of env runners.
        progress: How far the run is on its way to the nearest stop criterion, in [0, 1].
        used: The share of the time, steps or iterations that is used, in [0, 1].
    """
    assert settings.train_batch_size_per_learner is not None  # It is filled in.
    lr = schedule(settings.lr)
    if settings.lr_at_goal is not None:
        lr = annealed(lr, settings.lr_at_goal, near_goal(progress))
    common_settings = UpdateSettings(
        train_batch_size=settings.train_batch_size_per_learner,
        minibatch_size=settings.minibatch_size,
        lr=lr,
        lr_left=1.0 - used if settings.anneal_lr else 1.0,
        progress=progress,
        used=used,
    )
    if not isinstance(settings, ImpalaSettings):
        return replace(common_settings, temperature=GREEDY)
    return replace(
        common_settings,
        entropy_coeff_left=1.0 - used if settings.anneal_entropy_coeff else 1.0,
        temperature=annealed(1.0, settings.final_temperature, used**TEMPERATURE_POWER),
    )


def schedule(value: Any) -> Any:
    """Returns a schedule as RLlib wants it: a number, or lists whose first step is 0."""
    if value is None or isinstance(value, int | float):
        return value
    points = [list(point) for point in value]
    if len(points) == 1:
        return points[0][1]
    return points if points[0][0] == 0 else [[0, points[0][1]], *points]


def value_at(given: float | list[list[float]], env_steps: int) -> float:
    """Returns the value, at a number of environment steps, of what `schedule` returned."""
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

    Most runs that can reach their return goal do so in that sixth, while only `near_goal` anneals.
    """
    return max(0.0, used - NOT_ANNEALED) / (1.0 - NOT_ANNEALED)


def annealed(start: float, at_goal: float | None, fraction: float) -> float:
    """Returns a coefficient that is annealed geometrically to `at_goal`, at a fraction in [0, 1].

    `at_goal` must be positive; None anneals nothing.
    """
    if at_goal is None or start == 0:
        return start
    return float(start * (at_goal / start) ** fraction)
