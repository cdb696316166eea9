"""The policy and value network: a shared convolutional net on normalised pixels."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis.value_function_api import ValueFunctionAPI
from ray.rllib.core.rl_module.torch import TorchRLModule
from torch import nn

from payload.environments.atari import AtariSettings, make_vector_env
from payload.experiment.fragment_settings import FragmentSettings
from payload.experiment.impala_settings import ImpalaSettings
from payload.impala.train_batch import FIRST, FRAMES, STATES, stack_frames

STACKS = "stacks"
"""What `AtariModule.stack` returned, for a learner that passes over a minibatch several times."""
QUANTILES = "quantiles"
"""Quantiles of each action's return, [B, actions, quantiles]; ACTION_DIST_INPUTS has their mean."""
STATE = ("h", "c")
"""The parts of an LSTM's state."""
LAYERS = {
    # A first stride of 3 takes a third more time, and Pong needs as many steps.
    "small": ((16, 6, 4), (32, 4, 2)),
    "fine": ((16, 4, 2), (32, 4, 2)),
    "nature": ((32, 8, 4), (64, 4, 2), (64, 3, 1)),
}
"""Channels, kernel size and stride: A3C's (Mnih et al. 2016) with a smaller first kernel, the same
with a smaller first stride, for games where a pixel counts, and that of Mnih et al. (2015)."""
RESIDUAL_CHANNELS = (16, 32, 32)
"""Channels of the residual network of Espeholt et al. (2018), figure 3."""
PIXEL_CLIP = 5.0
PIXEL_STATISTICS_SEED = 12_345
PIXEL_STD_FLOOR = 8.0
"""Added to a pixel's standard deviation (grey levels), so that a dead pixel stays quiet."""


class AtariModule(TorchRLModule, ValueFunctionAPI):
    """Convolutions and one dense layer, shared by policy and value; an LSTM may follow them.

    With `q_values` (PQN) the policy's outputs are quantiles of each action's return, whose means
    take the place of logits: a separate value is not learned, and layer normalisation follows each
    layer.

    Pixels are normalised one by one with the mean and standard-deviation image of
    random play; without that, Pong at 42x42 shows no learning by half a million steps.
    Both images are buffers: they travel and are saved with the weights. So is the temperature with
    which env runners sample.
    """

    temperature: torch.Tensor

    def setup(self) -> None:
        shape = self.observation_space.shape
        hidden = self.model_config["fcnet_hidden"]
        # Older checkpoints say neither this nor num_quantiles.
        self.of_actions = self.model_config.get("q_values", False)
        conv = convolutions(self.model_config["network"], shape, normalized=self.of_actions)
        conv_size = conv(torch.zeros(1, *shape)).shape[1]
        dense = [orthogonal(nn.Linear(conv_size, hidden))]
        if self.of_actions:
            dense.append(nn.LayerNorm(hidden))
        self.body = nn.Sequential(conv, *dense, nn.ReLU())
        self.lstm = None
        if self.model_config.get("use_lstm"):
            hidden, before = self.model_config["lstm_cell_size"], hidden
            self.lstm = nn.LSTMCell(before, hidden)
            for name, weight in self.lstm.named_parameters():
                (nn.init.zeros_ if "bias" in name else nn.init.orthogonal_)(weight)
        self.num_quantiles = self.model_config.get("num_quantiles", 1)
        num_outputs = int(self.action_space.n) * self.num_quantiles
        self.policy = orthogonal(nn.Linear(hidden, num_outputs), gain=0.01)
        if not self.of_actions:
            self.value = orthogonal(nn.Linear(hidden, 1), gain=1.0)
        self.register_buffer("temperature", torch.ones(()))
        self.register_buffer("pixel_mean", torch.zeros(shape[1:]))
        self.register_buffer("pixel_scale", torch.full(shape[1:], 1 / 255))

    def set_pixel_statistics(self, mean: npt.NDArray[Any], std: npt.NDArray[Any]) -> None:
        """Sets the images, each [H, W] in grey levels, that normalise an observation."""
        self.pixel_mean.copy_(torch.as_tensor(mean))
        self.pixel_scale.copy_(1.0 / (torch.as_tensor(std) + PIXEL_STD_FLOOR))

    def stack(self, batch: dict[str, Any]) -> torch.Tensor:
        """Returns the normalized stacks of a train batch, float32 [N * (T + 1), K, H, W]."""
        frames = batch[FRAMES]
        blank = self._normalize(torch.zeros_like(frames[0, 0]))
        return stack_frames(self._normalize(frames), batch[FIRST], blank).flatten(0, 1)

    def get_initial_state(self) -> dict[str, torch.Tensor]:
        """Returns the LSTM's state at the start of an episode, [cell] each; nothing without one."""
        if self.lstm is None:
            return {}
        return {name: torch.zeros(self.lstm.hidden_size) for name in STATE}

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Returns RLlib's outputs of an env runner's stacks, [B, ...], or a train batch's frames.

        With an LSTM, stacks are sequences, [B, S, ...], behind the state STATE_IN, [B, cell] each.
        """
        if self.lstm is None or FRAMES in batch:
            embeddings = self._embed(batch)
            outputs = self.policy(embeddings)
            if self.of_actions:
                quantiles = outputs.unflatten(-1, (-1, self.num_quantiles))
                return {QUANTILES: quantiles, Columns.ACTION_DIST_INPUTS: quantiles.mean(-1)}
            return {Columns.EMBEDDINGS: embeddings, Columns.ACTION_DIST_INPUTS: outputs}
        stacks = batch[Columns.OBS]
        rows, slots = stacks.shape[:2]
        inputs = self.body(self._normalize(stacks.flatten(0, 1))).view(rows, slots, -1)
        state = tuple(batch[Columns.STATE_IN][name] for name in STATE)
        embeddings, state = self._remember(inputs, state)
        return {
            Columns.ACTION_DIST_INPUTS: self.policy(embeddings),
            Columns.STATE_OUT: dict(zip(STATE, state, strict=True)),
        }

    def _remember(
        self,
        inputs: torch.Tensor,
        state: tuple[torch.Tensor, ...],
        first: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        """Runs the LSTM over [B, S, hidden]; returns [B, S, cell] and the state behind it.

        Args:
            state: h and c before it, [B, cell] each.
            first: [B, S] bool: an episode starts here, without memory.
        """
        assert self.lstm is not None
        outputs = []
        for slot in range(inputs.shape[1]):
            if first is not None:
                state = tuple(part * ~first[:, slot, None] for part in state)
            state = self.lstm(inputs[:, slot], state)
            outputs.append(state[0])
        return torch.stack(outputs, 1), state

    def _forward_train(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        outputs = self._forward(batch)
        if self.of_actions:
            return outputs
        values = self.compute_values(batch, outputs[Columns.EMBEDDINGS])
        return {**outputs, Columns.VF_PREDS: values}

    def compute_values(
        self, batch: dict[str, Any], embeddings: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Returns the value of each observation, [B] float32."""
        if embeddings is None:
            embeddings = self._embed(batch)
        return self.value(embeddings).squeeze(-1)

    def get_state(self, *args: Any, **kwargs: Any) -> dict[str, npt.NDArray[Any]]:
        """Returns RLlib's state; copies all weights from a GPU at once."""
        tensors = {name: tensor.detach() for name, tensor in self.state_dict().items()}
        flat = torch.cat([tensor.flatten() for tensor in tensors.values()]).cpu()
        parts = flat.split([tensor.numel() for tensor in tensors.values()])
        return {
            name: part.view(tensor.shape).numpy()
            for (name, tensor), part in zip(tensors.items(), parts, strict=True)
        }

    def _embed(self, batch: dict[str, Any]) -> torch.Tensor:
        """Maps an env runner's stacks or a train batch's frames to float32 [B, hidden].

        The stacks are uint8 [B, K, H, W]. For a train batch, B is N * (T + 1), row after row.
        """
        if FRAMES not in batch:
            return self.body(self._normalize(batch[Columns.OBS]))
        # K is the fastest axis, as in channels_last, whose backward pass takes a fifth less time on
        # CPUs. Not in bfloat16: it takes a third less time, but on three seeds tried Pong took 1.1
        # to over 2 times the steps.
        features = self.body(batch[STACKS] if STACKS in batch else self.stack(batch))
        if self.lstm is None:
            return features
        first = batch[FIRST]
        features = features.view(*first.shape, -1)
        return self._remember(features, batch[STATES].unbind(1), first)[0].flatten(0, 1)

    def _normalize(self, pixels: torch.Tensor) -> torch.Tensor:
        """Maps uint8 [..., H, W] to float32, pixel by pixel."""
        normalized = pixels.float().sub_(self.pixel_mean).mul_(self.pixel_scale)
        return normalized.clamp_(-PIXEL_CLIP, PIXEL_CLIP)


def network_of(settings: FragmentSettings) -> dict[str, Any]:
    """Returns the model_config from which AtariModule builds its network."""
    return {
        "network": settings.network,
        "fcnet_hidden": settings.fcnet_hidden,
        "q_values": not isinstance(settings, ImpalaSettings),
        "num_quantiles": getattr(settings, "num_quantiles", 1),
        "use_lstm": isinstance(settings, ImpalaSettings) and settings.use_lstm,
        "lstm_cell_size": getattr(settings, "lstm_cell_size", None),
    }


def convolutions(name: str, shape: tuple[int, int, int], normalized: bool = False) -> nn.Sequential:
    """Returns layers that map float32 [B, K, H, W] to float32 [B, features].

    Args:
        name: small, fine, nature or impala.
        shape: K, H, W.
        normalized: Whether layer normalisation follows each convolution.
    """
    channels, *image = shape
    layers: list[nn.Module] = []
    if name == "impala":
        for out in RESIDUAL_CHANNELS:
            pool = nn.MaxPool2d(3, stride=2, padding=1)
            convolution = orthogonal(nn.Conv2d(channels, out, 3, padding=1))
            blocks = [ResidualBlock(out, normalized) for _ in range(2)]
            layers += [convolution, *_norm(out, normalized), pool, *blocks]
            channels = out
        return nn.Sequential(*layers, nn.ReLU(), nn.Flatten())
    for out, kernel, stride in LAYERS[name]:
        # Otherwise the strides would skip the last rows or columns.
        padding = [(-(size - kernel) % stride + 1) // 2 for size in image]
        convolution = orthogonal(nn.Conv2d(channels, out, kernel, stride, tuple(padding)))
        layers += [convolution, *_norm(out, normalized), nn.ReLU()]
        image = [
            (size + 2 * pad - kernel) // stride + 1
            for size, pad in zip(image, padding, strict=True)
        ]
        channels = out
    return nn.Sequential(*layers, nn.Flatten())


class ResidualBlock(nn.Module):
    """Adds two convolutions of its input to the input."""

    def __init__(self, channels: int, normalized: bool) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for _ in range(2):
            convolution = orthogonal(nn.Conv2d(channels, channels, 3, padding=1))
            layers += [nn.ReLU(), convolution, *_norm(channels, normalized)]
        self.layers = nn.Sequential(*layers)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        added: torch.Tensor = self.layers(images)
        return images + added


def _norm(channels: int, normalized: bool) -> list[nn.Module]:
    """Returns what follows a convolution; one group is a layer normalisation over all channels."""
    return [nn.GroupNorm(1, channels)] if normalized else []


def orthogonal(layer: nn.Module, gain: float = 2**0.5) -> nn.Module:
    """Returns the layer with orthogonal weights and zero bias (Engstrom et al. 2020)."""
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


def pixel_statistics(
    settings: AtariSettings, num_envs: int = 2, num_steps: int = 500
) -> tuple[np.ndarray, np.ndarray]:
    """Returns mean and standard-deviation image, [H, W] float32, of random play."""
    env = make_vector_env(settings, num_envs)
    rng = np.random.default_rng(PIXEL_STATISTICS_SEED)
    env.reset(seed=PIXEL_STATISTICS_SEED)
    num_actions = int(env.single_action_space.n)
    frames = []
    for _ in range(num_steps):
        observations, *_ = env.step(rng.integers(num_actions, size=num_envs))
        frames.append(observations[:, -1].astype(np.float32))
    env.close()
    images = np.concatenate(frames)
    return images.mean(0), images.std(0)
