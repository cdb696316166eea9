"""From what each part costs on one machine to the throughput of many, and what limits it first."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from payload.experiment.scale import scale_of
from payload.experiment.settings import MINIBATCH_STEPS

CORES_OF_WORKER = 2
"""Of a Standard_D2as_v5, the default worker."""
HEAD_LINK = 8e9 / 8
"""Bytes per second of a Standard_NC4as_T4_v3 (8 Gbit/s), the default head with a GPU."""
CORES = (13, 32, 100, 300, 1000)


@dataclass(frozen=True)
class Costs:
    """What was measured, of the default size of an observation."""

    env_runner_us: Mapping[int, float]
    """Of a core, for an environment step, by the number of an env runner's games."""
    driver_us_per_fragment: float
    fragment_bytes: float
    """That travel for an environment step."""
    weights_bytes: float
    gradient_step_us: float
    """Of the host of a learner on a GPU, for each gradient step, whatever its size."""
    learner_us: float
    """Of a core that learns, for an environment step."""


@dataclass(frozen=True)
class Prediction:
    """Environment steps per second of a cluster."""

    cores: int
    """Of env runners."""
    learners: int
    """On GPUs; 0 is one on a core."""
    offered: float
    """By the env runners."""
    limits: Mapping[str, float]
    """What each other part can carry."""

    @property
    def wall(self) -> str:
        """Returns what limits the throughput; "env runners" where all else carries them."""
        name, limit = min(self.limits.items(), key=lambda item: item[1])
        return name if limit < self.offered else "env runners"

    @property
    def throughput(self) -> float:
        return min(self.offered, *self.limits.values())


def predict(costs: Costs, cores: int, learners: int) -> Prediction:
    """Returns the throughput of an env runner on each of `cores`, and what each part carries."""
    scale = scale_of(cores)
    nodes = math.ceil(cores / CORES_OF_WORKER)
    batch = scale.factor * scale.fragment_steps
    if learners == 0:
        learning = {"a learner on a core": 1e6 / costs.learner_us}
    else:
        minibatch = MINIBATCH_STEPS["IMPALA"] * scale.factor
        learning = {"learners' hosts": learners * minibatch * 1e6 / costs.gradient_step_us}
    return Prediction(
        cores,
        learners,
        cores * 1e6 / costs.env_runner_us[scale.num_envs_per_env_runner],
        {
            "driver": scale.fragment_steps * 1e6 / costs.driver_us_per_fragment,
            "network into the head": HEAD_LINK / costs.fragment_bytes,
            # Each worker fetches the weights after each update.
            "network out of the head": HEAD_LINK * batch / (nodes * costs.weights_bytes),
            **learning,
        },
    )
