"""Settings of PQN, parallelised Q-learning (Gallici et al. 2024), which learns Atari games."""

from __future__ import annotations

from pydantic import Field

from payload.experiment.fragment_settings import FragmentSettings
from payload.experiment.settings_of_every_algorithm import Schedule


class PQNSettings(FragmentSettings):
    """What `config` of PQN may contain."""

    epsilon: Schedule = Field([(0, 1.0), (250_000, 0.01)])
    """Probability of a uniformly random action: a number or a schedule."""
    lambda_: float = Field(0.65, ge=0, le=1)
    """Lambda of Q(lambda)."""
    grad_clip: float | None = Field(10.0, gt=0)
    """Largest global norm of a gradient; `null` disables clipping."""
    num_quantiles: int = Field(32, ge=1)
    """Quantiles of the return that are learned for each action (Dabney et al. 2018)."""
