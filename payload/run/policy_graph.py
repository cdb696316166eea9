"""A checkpoint's policy as a function of tensors, which can become an ONNX model."""

import torch
from ray.rllib.algorithms.dqn.default_dqn_rl_module import QF_PREDS, DefaultDQNRLModule
from ray.rllib.core.columns import Columns
from torch import nn
from torch.utils._pytree import tree_flatten_with_path, tree_leaves, tree_unflatten

from payload.environments.policy_action import PolicyActions
from payload.run.checkpoint_policy import Policy, forward, initial_state, likeliest

OBSERVATIONS = "observations"


class PolicyGraph(nn.Module):
    """The likeliest action, as the environment takes it, and the numbers it is chosen by.

    All inputs and outputs are tensors [N, ...]. An LSTM's state is an input and an output.
    """

    def __init__(self, policy: Policy, actions: PolicyActions) -> None:
        super().__init__()
        self.module = module = policy.module
        self._actions, self._filter = actions, policy.filter
        state, self._structure = tree_flatten_with_path(initial_state(module, 1))
        places = ["".join(f".{key.key}" for key in path) for path, _ in state]
        self._has_q = isinstance(module, DefaultDQNRLModule)
        of_actions = self._has_q or getattr(module, "of_actions", False)
        self.scores = "q_values" if of_actions else Columns.ACTION_DIST_INPUTS
        self.actions = [part.name for part in actions.parts]
        self.inputs = [OBSERVATIONS, *(f"state_in{place}" for place in places)]
        self.outputs = [self.scores, *self.actions, *(f"state_out{place}" for place in places)]

    def state(self, batch: int) -> tuple[torch.Tensor, ...]:
        """Returns the state at the start of `batch` episodes."""
        return tuple(tree_leaves(initial_state(self.module, batch)))

    def forward(self, observations: torch.Tensor, *state: torch.Tensor) -> tuple[torch.Tensor, ...]:
        if self._filter is not None:
            observations = self._filter.in_graph(observations)
        before = tree_unflatten(state, self._structure)
        if self._has_q:  # Its own forward pass does not return them.
            values = self.module.compute_q_values({Columns.OBS: observations})
            scores, after = values[QF_PREDS], before
        else:
            outputs, after = forward(self.module, observations, before)
            scores = outputs[Columns.ACTION_DIST_INPUTS]
        actions = self._actions.in_graph(likeliest(self.module, scores))
        return scores, *actions.values(), *tree_leaves(after)
