"""Turns rollout fragments into what a learner trains on: train batch, replayed rows, stacks."""

import random
from collections import deque
from typing import Any

import numpy as np
import torch
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.columns import Columns
from ray.rllib.utils.metrics import WEIGHTS_SEQ_NO

from payload.impala.rollout_fragment import RolloutFragment

FRAMES = "frames"
"""[N, K - 1 + T + 1, H, W]: each frame once. The module stacks them, on the learner's device."""
FIRST = "first"
"""[N, T + 1]: this observation is the first of its episode."""
STATES = "states"
"""[N, 2, cell]: h and c of the policy's LSTM before the first slot."""
Rows = dict[str, torch.Tensor]
"""Rows of one trajectory each, [N, ...]."""


class FragmentsToTrainBatch(ConnectorV2):
    """Puts fragments of N environments and T steps into N rows of T + 1 slots.

    A column is [N, T + 1], but for FRAMES and WEIGHTS_SEQ_NO, [N]; the last slot of a row holds
    the bootstrap observation. LOSS_MASK is False there, and at a truncated step: that step's
    observation bootstraps the one before it, so no final observation has to travel. Replaces
    RLlib's AddOneTsToEpisodesAndTruncate, AddObservationsFromEpisodesToBatch and
    NumpyToTensor.
    """

    def __init__(self, *args: Any, clip_rewards: bool = True, **kwargs: Any) -> None:
        """
        Args:
            clip_rewards: Whether the learner sees the sign-preserving reward in [-1, 1].
        """
        super().__init__(*args, **kwargs)
        self.clip_rewards = clip_rewards

    def __call__(
        self, *, episodes: list[RolloutFragment], batch: dict[str, Any], **kwargs: Any
    ) -> dict[str, dict[str, torch.Tensor]]:
        """Returns {module id: columns}; raises ValueError if the fragments' T differ."""
        if len({fragment.actions.shape[0] for fragment in episodes}) != 1:
            raise ValueError("rollout fragments of different lengths in one train batch")
        columns = [self._columns(fragment) for fragment in episodes]
        return {
            DEFAULT_MODULE_ID: {
                name: torch.from_numpy(np.concatenate([c[name] for c in columns]))
                for name in columns[0]
            }
        }

    def _columns(self, fragment: RolloutFragment) -> dict[str, np.ndarray]:
        num_steps, num_envs = fragment.actions.shape
        rewards = fragment.rewards
        if self.clip_rewards:
            rewards = np.clip(rewards, -1.0, 1.0)

        def rows(values: np.ndarray, dtype: type) -> np.ndarray:
            padded = np.zeros((num_envs, num_steps + 1), dtype)
            padded[:, :num_steps] = values.T
            return padded

        state = {} if fragment.state is None else {STATES: fragment.state.swapaxes(0, 1)}
        return {
            **state,
            FRAMES: fragment.frames.swapaxes(0, 1),
            FIRST: fragment.first.T,
            Columns.ACTIONS: rows(fragment.actions, np.int64),
            Columns.ACTION_LOGP: rows(fragment.action_logp, np.float32),
            Columns.REWARDS: rows(rewards, np.float32),
            Columns.TERMINATEDS: rows(fragment.terminated, np.bool_),
            Columns.LOSS_MASK: rows(~fragment.truncated, np.bool_),
            WEIGHTS_SEQ_NO: np.full(num_envs, fragment.weights_seq_no, np.int64),
        }


class ReplayBuffer:
    """The last train batches, on the learner's device.

    Rewards are rare while a policy is bad, and a step of the emulator takes longer than one of the
    learner. IMPALA's V-trace corrects for the older policy, as in ACER (Wang et al. 2017) and LASER
    (Schmitt et al. 2020); those replay from long ago, this buffer by default only from the last
    seconds. PQN does not correct: Q-learning does not depend on the policy that took the actions,
    apart from the few steps that lambda sums up.
    """

    def __init__(self, num_slots: int, proportion: int, seed: int | None) -> None:
        """
        Args:
            num_slots: Train batches that it keeps.
            proportion: Train batches replayed for each new one.
            seed: Seed of the draws; None draws differently in each run.
        """
        self._proportion = proportion
        self._batches: deque[Rows] = deque(maxlen=num_slots)
        self._random = random.Random(seed)

    def add(self, new: Rows) -> Rows:
        """Keeps a train batch; returns its rows and the replayed ones in random order."""
        if self._proportion == 0:
            return new
        # Trajectories change their length if env runners have started again with other settings.
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
        self._batches.clear()


def stack_frames(frames: torch.Tensor, first: torch.Tensor, blank: torch.Tensor) -> torch.Tensor:
    """Rebuilds the frame stacks that the policy saw, [N, T + 1, K, H, W] with K as fastest axis.

    Frames from before an episode's start are blank, as in the emulator's own stack.

    Args:
        frames: [N, K - 1 + T + 1, H, W], each frame once, as it is or normalized.
        first: [N, T + 1] bool; this observation is the first of its episode.
        blank: [H, W], a black frame; normalized if the frames are.
    """
    num_slots = first.shape[1]
    stack = frames.shape[1] - num_slots + 1
    windows = frames.unfold(1, stack, 1)
    # Reading values would make the host wait for a GPU. On CPUs `where` takes six times as long.
    stacks = (_stack_on_gpu if frames.is_cuda else _stack_on_cpu)(windows, first, blank)
    return stacks.movedim(-1, 2)


def _stack_on_gpu(windows: torch.Tensor, first: torch.Tensor, blank: torch.Tensor) -> torch.Tensor:
    stack = windows.shape[-1]
    slots = torch.arange(first.shape[1], device=first.device)
    starts = torch.where(first, slots, -stack).cummax(1).values
    ages = torch.arange(stack - 1, -1, -1, device=first.device)
    outside = ages > (slots - starts)[..., None]
    return torch.where(outside[:, :, None, None, :], blank[..., None], windows)


def _stack_on_cpu(windows: torch.Tensor, first: torch.Tensor, blank: torch.Tensor) -> torch.Tensor:
    stacks = windows.contiguous()
    _, num_slots, *_, stack = stacks.shape
    for row, start in first.nonzero().tolist():
        for slot in range(start, min(start + stack - 1, num_slots)):
            stacks[row, slot, ..., : stack - 1 - (slot - start)] = blank[..., None]
    return stacks
