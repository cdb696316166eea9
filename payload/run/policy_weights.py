"""The weights of volley's own network, beside RLlib's checkpoint in numpy's format.

RLlib's files are pickles, which can run any code when they are read; an array cannot. Networks of
RLlib and of other environments stay pickles: their classes and spaces are Python objects.
"""

import pickle
import zipfile
from pathlib import Path

import gymnasium
import numpy as np
import torch

from payload.environments.atari import game_of
from payload.experiment.derived_defaults import with_defaults
from payload.experiment.fragment_settings import FragmentSettings
from payload.experiment.settings import Experiment
from payload.impala.module import AtariModule, network_of

MAX_BYTES = 2**30
"""The largest network has some 20 MB."""


def has_own_network(experiment: Experiment) -> bool:
    """Whether volley's own learners train it; imports no module that the experiment names."""
    own = isinstance(experiment.config, FragmentSettings) and ":" not in experiment.env
    return own and game_of(experiment) is not None


def write_weights(state: Path, file: Path) -> None:
    """Copies the weights from RLlib's module_state.pkl, which this training has just written."""
    with file.open("wb") as opened:
        np.savez(opened, **pickle.loads(state.read_bytes()))


def own_module(file: Path, experiment: Experiment) -> AtariModule:
    """Builds the network of an experiment with the weights of a file.

    Raises:
        Exception: The file is damaged, too large, or of another network.
    """
    game, settings = game_of(experiment), with_defaults(experiment, atari=True)
    assert game is not None
    assert isinstance(settings, FragmentSettings)
    with zipfile.ZipFile(file) as archive:
        if sum(member.file_size for member in archive.infolist()) > MAX_BYTES:
            raise ValueError(f"{file.name} has more than {MAX_BYTES:,} bytes")
    with np.load(file, allow_pickle=False) as arrays:
        weights = {name: torch.from_numpy(arrays[name]) for name in arrays.files}
    shape = (game.frame_stack, *game.image_shape)
    network = network_of(settings)
    num_actions = len(weights["policy.bias"]) // network["num_quantiles"]
    module = AtariModule(
        observation_space=gymnasium.spaces.Box(0, 255, shape, np.uint8),
        action_space=gymnasium.spaces.Discrete(num_actions),
        model_config=network,
    )
    module.load_state_dict(weights)
    return module
