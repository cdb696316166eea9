"""Learner connector: rollout fragments -> the learner's train batch."""

from __future__ import annotations

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


class FragmentsToTrainBatch(ConnectorV2):
    """Puts fragments of N environments and T steps into N rows of T + 1 slots.

    A column is [N, T + 1], but for FRAMES and WEIGHTS_SEQ_NO, [N]; the last slot of a row holds
    the bootstrap observation. LOSS_MASK is False there, and at a truncated step: that step's
    observation bootstraps the one before it, so no final observation has to travel. Takes the
    place of RLlib's AddOneTsToEpisodesAndTruncate, AddObservationsFromEpisodesToBatch and
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

        return {
            FRAMES: fragment.frames.swapaxes(0, 1),
            FIRST: fragment.first.T,
            Columns.ACTIONS: rows(fragment.actions, np.int64),
            Columns.ACTION_LOGP: rows(fragment.action_logp, np.float32),
            Columns.REWARDS: rows(rewards, np.float32),
            Columns.TERMINATEDS: rows(fragment.terminated, np.bool_),
            Columns.LOSS_MASK: rows(~fragment.truncated, np.bool_),
            WEIGHTS_SEQ_NO: np.full(num_envs, fragment.weights_seq_no, np.int64),
        }
