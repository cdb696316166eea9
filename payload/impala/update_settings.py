"""What a learner's update follows while a run progresses and its env runners come and go."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class UpdateSettings:
    """Settings of the updates from now on; the driver sets them on every learner.

    They travel with a train batch through a learner's queue. Several learners would otherwise
    change them at different updates, and halt or drift apart.
    """

    train_batch_size: int
    """Environment steps of a learner's share."""
    minibatch_size: int | None
    """Environment steps of a gradient step; None for the whole train batch."""
    lr: float | list[list[float]]
    """A number or a schedule."""
    lr_left: float = 1.0
    """The share of lr that annealing has left, in [0, 1]."""
    entropy_coeff_left: float = 1.0
    """The share of entropy_coeff that annealing has left, in [0, 1]."""
    temperature: float = 1.0
    """Of the softmax from which env runners sample with the weights of this update."""
    progress: float = 0.0
    """How far the run is on its way to the nearest stop criterion, in [0, 1]."""
    used: float = 0.0
    """The share of the time, steps or iterations that is used, whatever the return, in [0, 1]."""
