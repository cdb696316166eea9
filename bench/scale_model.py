"""Predicts the throughput of many machines, and its limit, from each part's cost on one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from payload.experiment.batch_sizes import batch_sizes_for
from payload.experiment.fragment_settings import MINIBATCH_STEPS

HEAD_LINK = 8e9 / 8
"""Bytes per second of a Standard_NC4as_T4_v3 (8 Gbit/s), the default head with a GPU."""
CORES = (13, 32, 100, 300, 1000)
START_S = 12.0
"""Seconds from the command to the first learner update."""
PONG_STEPS = 778_000
"""Environment steps until Pong's mean return is 18, with a laptop's minibatches: the median of 12
seeds."""
PONG_EPISODE_STEPS = 1_950
"""Steps of a game that is won 21 to 3."""
CRITICAL_FACTOR = 2.0
"""Multiple of a laptop's minibatch that takes twice the environment steps of an infinitely small
one (McCandlish et al. 2018, equation 2.11). An assumption: with four times Pong was not solved in
1.16 million."""


@dataclass(frozen=True)
class Costs:
    """Measured costs, at the default size of an observation."""

    env_runner_us: Mapping[int, float]
    """A core's time for an environment step, by the number of an env runner's games."""
    driver_us_per_fragment: float
    fragment_bytes: float
    """Bytes sent per environment step."""
    weights_bytes: float
    gradient_step_us: float
    """The host's time for a gradient step of a learner on a GPU, whatever its size."""
    learner_us: float
    """The time of a core that learns for an environment step."""


@dataclass(frozen=True)
class Prediction:
    """Environment steps per second of a cluster."""

    cores: int
    """Cores of env runners."""
    gpu: bool
    """Whether the learner has a GPU; otherwise it has a core."""
    offered: float
    """Steps that the env runners offer."""
    limits: Mapping[str, float]
    """Steps that each of the other parts can carry."""

    @property
    def wall(self) -> str:
        """Returns what limits the throughput; "env runners" if all other parts keep up."""
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
    """Predicts a cluster with an env runner on each of `cores`, and the capacity of each part.

    The GPU's own computing time is not included: only its host's share of a gradient step
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
