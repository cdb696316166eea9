"""The frame stacks of a rollout fragment, as arrays."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from payload.impala.rollout_fragment import RolloutFragment
from payload.impala.train_batch import stack_frames


def stacks_of(fragment: RolloutFragment) -> npt.NDArray[np.uint8]:
    """Returns what the policy saw, [N, T + 1, K, H, W]."""
    frames = torch.from_numpy(fragment.frames.swapaxes(0, 1).copy())
    first = torch.from_numpy(fragment.first.T.copy())
    stacks: npt.NDArray[np.uint8] = stack_frames(
        frames, first, torch.zeros_like(frames[0, 0])
    ).numpy()
    return stacks
