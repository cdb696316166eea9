"""Experience replay: train batches that a learner has seen, beside the one that it gets."""

from __future__ import annotations

import random
from collections import deque

import torch

from payload.impala.connector import FIRST

Columns = dict[str, torch.Tensor]
"""Rows of one trajectory each, [N, ...]."""


class ReplayBuffer:
    """The last train batches, on the learner's device.

    Rewards are rare while a policy is bad, and a step of the emulator takes longer than one of the
    learner. V-trace corrects for the older policy, as in ACER (Wang et al. 2017) and LASER (Schmitt
    et al. 2020); they replay from long ago, this buffer from the last seconds alone.
    """

    def __init__(self, num_slots: int, proportion: int, seed: int | None) -> None:
        """
        Args:
            num_slots: Train batches that it keeps.
            proportion: Train batches replayed for each new one.
            seed: Of the draws; None draws others in each run.
        """
        self._proportion = proportion
        self._batches: deque[Columns] = deque(maxlen=num_slots)
        self._random = random.Random(seed)

    def add(self, new: Columns) -> Columns:
        """Keeps a train batch; returns its rows and the replayed ones in random order."""
        if self._proportion == 0:
            return new
        # Trajectories have another length where env runners have begun again with other settings.
        if self._batches and self._batches[0][FIRST].shape[1] != new[FIRST].shape[1]:
            self.clear()
        count = min(self._proportion, len(self._batches))
        replayed = self._random.sample(list(self._batches), count)
        self._batches.append(new)
        if not replayed:
            return new
        together = {name: torch.cat([new[name], *(b[name] for b in replayed)]) for name in new}
        order = torch.randperm(len(together[FIRST]), device=together[FIRST].device)
        return {name: column.index_select(0, order) for name, column in together.items()}

    def clear(self) -> None:
        """Forgets all train batches."""
        self._batches.clear()
