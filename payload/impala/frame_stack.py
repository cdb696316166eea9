"""Frame stacking, on the learner's side: each frame travels once and is stacked here."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from payload.impala.rollout_fragment import RolloutFragment


def stack_frames(fragment: RolloutFragment) -> npt.NDArray[np.uint8]:
    """Rebuilds the frame stacks that the policy saw: [N, T + 1, K, H, W].

    Frames from before an episode's start are zero, as in the emulator's own stack.
    """
    steps = len(fragment.first)
    stack = len(fragment.frames) - steps + 1
    windows = np.lib.stride_tricks.sliding_window_view(fragment.frames, stack, axis=0)
    # Always a copy: out of Ray's object store the frames are read-only.
    observations = windows.transpose(1, 0, 4, 2, 3).copy()
    # In the first observation the padding is already part of the frames.
    for t, env in zip(*np.nonzero(fragment.first[1:]), strict=True):
        for later in range(min(stack - 1, steps - 1 - t)):
            observations[env, t + 1 + later, : stack - 1 - later] = 0
    return observations
