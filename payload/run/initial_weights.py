"""Begins a training with the weights of another one's checkpoint, where shapes fit."""

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.rl_module.rl_module import RLModule
from ray.rllib.utils.numpy import convert_to_numpy

from payload.environments.observation_filter import MeanStd, begin_with, statistics_of
from payload.errors import UserError
from payload.run.checkpoint_policy import needs_pickle
from payload.run.checkpoints import Checkpoint

Weights = dict[str, npt.NDArray[Any]]
TEMPERATURE = "temperature"
"""The buffer of AtariModule with which env runners sample."""
NAMED = 3
"""Tensors without weights that are named."""


def load_weights(algorithm: Any, checkpoint: Checkpoint) -> str:
    """Copies weights to every learner and env runner, and the filter of observations if both
    trainings have one; returns a line about the weights.

    Optimizer, counters and schedules stay as they are.

    Raises:
        UserError: No tensor of the network has the name and the shape of one in the checkpoint.
    """
    weights = _weights(checkpoint)
    fill = partial(_fill, weights=weights)
    filled, left = next(result.get() for result in algorithm.learner_group.foreach_learner(fill))
    if not filled:
        raise UserError(f"--init-from {checkpoint.path}: has no tensor of this network")
    algorithm.env_runner_group.sync_weights(
        from_worker_or_learner_group=algorithm.learner_group, inference_only=True
    )
    if checkpoint.observation_filter.is_file() and statistics_of(algorithm) is not None:
        filter_ = MeanStd.read(checkpoint.observation_filter)
        if filter_.mean.shape == algorithm.env_runner.module.observation_space.shape:
            begin_with(algorithm, filter_)
    more = ", ..." if len(left) > NAMED else ""
    rest = f"; not {', '.join(left[:NAMED])}{more}" if left else ""
    total = len(filled) + len(left)
    return f"Loaded {len(filled)} of {total} tensors from {checkpoint.path}{rest}"


def _weights(checkpoint: Checkpoint) -> Weights:
    if not needs_pickle(checkpoint):
        with np.load(checkpoint.weights, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    weights: Weights = convert_to_numpy(RLModule.from_checkpoint(checkpoint.module).get_state())
    return weights


def _fill(learner: Any, weights: Weights) -> tuple[list[str], list[str]]:
    """Returns the names of the tensors that have been filled, and those of the others."""
    filled, left = [], []
    with torch.no_grad():
        for name, tensor in learner.module[DEFAULT_MODULE_ID].unwrapped().state_dict().items():
            if name == TEMPERATURE:  # It follows this training's settings.
                continue
            if name in weights and weights[name].shape == tuple(tensor.shape):
                tensor.copy_(torch.as_tensor(weights[name]))
                filled.append(name)
            else:
                left.append(name)
    return filled, left
