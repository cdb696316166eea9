"""From what each part costs on one machine to the throughput of many, and what limits it first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from payload.experiment.batch_sizes import batch_sizes_for
from payload.experiment.impala_settings import MINIBATCH_STEPS

HEAD_LINK = 8e9 / 8
"""Bytes per second of a Standard_NC4as_T4_v3 (8 Gbit/s), the default head with a GPU."""
CORES = (13, 32, 100, 300, 1000)
START_S = 12.0
"""From the command to the first learner update."""
PONG_STEPS = 778_000
"""Environment steps until Pong's mean return is 18, with a laptop's minibatches: the median of 12
seeds."""
PONG_EPISODE_STEPS = 1_950
"""Of a game that is won 21 to 3."""
CRITICAL_FACTOR = 2.0
"""How many times a laptop's minibatch takes twice the environment steps of an endlessly small one
(McCandlish et al. 2018, equation 2.11). An assumption: with four times Pong was not solved in 1.16
million."""


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
    gpu: bool
    """Whether the learner has one; otherwise it has a core."""
    offered: float
    """By the env runners."""
    limits: Mapping[str, float]
    """What each of the other parts can carry."""

    @property
    def wall(self) -> str:
        """Returns what limits the throughput; "env runners" where all else carries them."""
        name, limit = min(self.limits.items(), key=lambda item: item[1])
        return name if limit < self.offered else "env runners"

    @property
    def throughput(self) -> float:
        return min(self.offered, *self.limits.values())

    @property
    def seconds_to_solve_pong(self) -> float:
        """Returns the time from the command to a mean return of 18, and the last games' end."""
        scale = batch_sizes_for(self.cores)
        steps = PONG_STEPS * (1 + scale.factor / CRITICAL_FACTOR) / (1 + 1 / CRITICAL_FACTOR)
        games = self.cores * scale.num_envs_per_env_runner
        return START_S + (steps + max(0, games - 100) * PONG_EPISODE_STEPS) / self.throughput


def predict(costs: Costs, cores: int, gpu: bool) -> Prediction:
    """Returns the throughput of an env runner on each of `cores`, and what each part carries.

    What a GPU computes in a second is not part of it: only its host's share of a gradient step
    was measured, and that is the same for each of several learners.
    """
    scale = batch_sizes_for(cores)
    minibatch = MINIBATCH_STEPS["IMPALA"] * scale.factor
    host = {"learner's host": minibatch * 1e6 / costs.gradient_step_us}
    learning = host if gpu else {"learner on a core": 1e6 / costs.learner_us}
    return Prediction(
        cores,
        gpu,
        cores * 1e6 / costs.env_runner_us[scale.num_envs_per_env_runner],
        {
            "driver": scale.fragment_steps * 1e6 / costs.driver_us_per_fragment,
            "network into the head": HEAD_LINK / costs.fragment_bytes,
            # Each env runner fetches the newest weights before a fragment.
            "network out of the head": HEAD_LINK * scale.fragment_steps / costs.weights_bytes,
            **learning,
        },
    )
