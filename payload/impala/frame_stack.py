"""Frame stacking, on the learner's side: each frame travels once and is stacked here."""

from __future__ import annotations

import torch


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
    # A look at values would make the host wait for a GPU. On CPUs `where` takes six times as long.
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
