"""A checkpoint's policy: observations to actions, without a cluster."""

from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import torch
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.rl_module import RLModule
from ray.rllib.utils.numpy import convert_to_numpy
from ray.rllib.utils.spaces.space_utils import unbatch
from torch.utils._pytree import tree_leaves, tree_map

from payload.environments.observation_filter import MeanStd
from payload.environments.space_entries import policy_spaces
from payload.errors import UserError
from payload.run.checkpoints import Checkpoint
from payload.run.policy_weights import has_own_network, own_module


def needs_pickle(checkpoint: Checkpoint) -> bool:
    """Whether playing the checkpoint reads pickles, which can run any code."""
    return not (checkpoint.weights.is_file() and has_own_network(checkpoint.experiment()))


def _module(checkpoint: Checkpoint) -> Any:
    if needs_pickle(checkpoint):
        return RLModule.from_checkpoint(checkpoint.module)
    return own_module(checkpoint.weights, checkpoint.experiment())


def _filter(checkpoint: Checkpoint) -> MeanStd | None:
    has_filter = checkpoint.experiment().config.observation_filter != "NoFilter"
    return MeanStd.read(checkpoint.observation_filter) if has_filter else None


class Policy:
    """Plays N episodes at once: observations [N, ...] to N actions."""

    def __init__(self, checkpoint: Checkpoint, explore: bool, seed: int | None = None) -> None:
        """
        Raises:
            UserError: The checkpoint is truncated, or of another version's network.
        """
        try:
            self.module = _module(checkpoint)
            self.filter = _filter(checkpoint)
        except Exception as error:  # A truncated file raises many types.
            reason = " ".join(str(error).split())
            raise UserError(
                f"{checkpoint.path}: cannot be read ({reason}). The checkpoint is damaged or from "
                "another version of volley or Ray. Try another one"
            ) from None
        self.spaces = policy_spaces(self.module.observation_space, self.module.action_space)
        """What it sees and does, in words."""
        # For a network of this size more threads gain little, and lose much on a busy machine.
        torch.set_num_threads(1)
        self.explore = explore
        self._state: Any = None
        """State of an LSTM, [N, ...]; None at the start of the episodes."""
        self._generator = torch.Generator().manual_seed(0 if seed is None else seed)

    def start(self) -> None:
        """Forgets the episodes so far."""
        self._state = None

    @torch.inference_mode()
    def __call__(self, observations: npt.NDArray[Any] | dict[str, npt.NDArray[Any]]) -> Any:
        """Returns the actions: an array for discrete ones, otherwise a list."""
        if self.filter is not None:
            assert isinstance(observations, np.ndarray)
            observations = self.filter(observations)
        outputs = self._forward(tree_map(torch.from_numpy, observations))
        if Columns.ACTIONS in outputs:  # DQN returns the best ones, and no distribution.
            return np.asarray(outputs[Columns.ACTIONS])
        inputs = outputs[Columns.ACTION_DIST_INPUTS]
        is_discrete = isinstance(self.module.action_space, gymnasium.spaces.Discrete)
        # Of action values the best one: DQN and PQN explore with random actions.
        if not self.explore or getattr(self.module, "of_actions", False):
            actions = convert_to_numpy(likeliest(self.module, inputs))
            return actions if is_discrete else unbatch(actions)
        if not is_discrete:
            distribution = self.module.get_inference_action_dist_cls().from_logits(inputs)
            return unbatch(convert_to_numpy(distribution.sample()))
        probabilities = torch.softmax(inputs, -1)
        return np.asarray(torch.multinomial(probabilities, 1, generator=self._generator)[:, 0])

    def _forward(self, observations: Any) -> dict[str, Any]:
        """Returns the module's outputs [N, ...]."""
        if self._state is None:
            self._state = initial_state(self.module, len(tree_leaves(observations)[0]))
        outputs, self._state = forward(self.module, observations, self._state)
        return outputs


def initial_state(module: Any, batch: int) -> Any:
    """Returns the state [N, ...] at the start of N episodes, which is empty without an LSTM."""
    initial = module.get_initial_state() if module.is_stateful() else {}
    return tree_map(lambda state: torch.stack([state] * batch), initial)


def forward(module: Any, observations: Any, state: Any) -> tuple[dict[str, Any], Any]:
    """Returns a module's outputs [N, ...] and its next state; an LSTM sees sequences of a step."""
    if not module.is_stateful():
        return module.forward_inference({Columns.OBS: observations}), state
    sequences = tree_map(lambda part: part[:, None], observations)
    batch = {Columns.OBS: sequences, Columns.STATE_IN: state}
    outputs = module.forward_inference(batch)
    after = outputs.pop(Columns.STATE_OUT)
    return {name: column[:, 0] for name, column in outputs.items()}, after


def likeliest(module: Any, inputs: torch.Tensor) -> Any:
    """Returns the likeliest actions, as the policy's space has them, of a distribution's inputs."""
    if isinstance(module.action_space, gymnasium.spaces.Discrete):
        return inputs.argmax(-1)
    distribution = module.get_inference_action_dist_cls().from_logits(inputs)
    return distribution.to_deterministic().sample()
