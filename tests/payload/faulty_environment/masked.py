"""An environment that not every action may be taken in, and networks for it."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis.value_function_api import ValueFunctionAPI
from ray.rllib.core.rl_module.torch import TorchRLModule


class Masked(gymnasium.Env[Any, Any]):
    """Raises an error for an action that the mask forbids."""

    observation_space: gymnasium.spaces.Space[Any] = Dict(
        action_mask=MultiBinary(4), observations=Box(-1, 1, (3,))
    )
    action_space: gymnasium.spaces.Space[Any] = Discrete(4)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self._show(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if not self.allowed[action]:
            raise ValueError(f"action {action} is not allowed")
        self.steps += 1
        return self._show(), 1.0, self.steps == 10, False, {}

    def _show(self) -> Any:
        self.allowed = np.zeros(4, np.int8)
        self.allowed[self.np_random.integers(4)] = 1
        return {"action_mask": self.allowed, "observations": np.zeros(3, np.float32)}


class Linear(TorchRLModule, ValueFunctionAPI):
    """One layer for the policy and one for the value."""

    def setup(self) -> None:
        size = self.observation_space["observations"].shape[0]
        self.policy = torch.nn.Linear(size, self.action_space.n, bias=self.model_config["bias"])
        self.value = torch.nn.Linear(size, 1)

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        seen = batch[Columns.OBS]
        logits = self.policy(seen["observations"]) - 1e9 * (1 - seen["action_mask"])
        return {Columns.ACTION_DIST_INPUTS: logits}

    def _forward_train(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        return {**self._forward(batch), Columns.VF_PREDS: self.compute_values(batch)}

    def compute_values(self, batch: dict[str, Any], embeddings: Any = None) -> torch.Tensor:
        return self.value(batch[Columns.OBS]["observations"]).squeeze(-1)


class NoModule:
    """Not a network."""


gymnasium.register("Masked-v0", f"{__name__}:Masked")
