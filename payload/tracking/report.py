"""The data of an iteration: RLlib's result as it was read, and the report made of it."""

import math
from dataclasses import dataclass, field
from statistics import fmean

MEAN_OVER = 100
"""Episodes in the mean return, as in the papers."""


@dataclass(frozen=True)
class TrainResult:
    """RLlib's result of one iteration; a count is of the whole run, None while unknown."""

    env_steps: int | None = None
    env_steps_trained: int | None = None
    env_steps_dropped: int = 0
    """Dropped in this iteration, because the learners' queue was full."""
    episodes: int | None = None
    rewards_sampled: float = math.nan
    """Sum of the game's own rewards over `steps_sampled`, this iteration's environment steps;
    NaN where the env runner does not report it."""
    steps_sampled: float = math.nan
    return_so_far_min: float = math.nan
    return_so_far_max: float = math.nan
    """Lowest and highest return so far of the episodes in progress."""
    returns: list[float] = field(default_factory=list)
    """Returns of the episodes that finished in this iteration."""
    lengths: list[float] = field(default_factory=list)
    info: dict[str, list[float]] = field(default_factory=dict)
    """The same of each number of `info` that is a metric."""
    values: dict[str, float] = field(default_factory=dict)
    """Metrics that RLlib's result contains under their names, see payload/tracking/metrics.py."""
    evaluation_returns: list[float] = field(default_factory=list)
    """Returns of the evaluation after this iteration, if there was one."""
    evaluation_lengths: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Report:
    """One iteration. Steps are environment steps; a mean without episodes is NaN."""

    iteration: int
    time_total_s: float
    """Seconds of training, those before a resume included."""
    env_steps: int
    env_steps_trained: int
    sampled_per_s: float
    trained_per_s: float
    episodes: int
    """Episodes finished, those before a resume included."""
    return_mean: float
    """Mean, smallest and largest return of the last 100 episodes."""
    return_min: float
    return_max: float
    current_return: float
    """What an episode would return at the rate of reward of the last steps."""
    length_mean: float
    env_runners: int
    """Env runners alive."""
    values: dict[str, float]
    """Metrics that RLlib's result contains under their names, see payload/tracking/metrics.py."""
    env_steps_dropped: int = 0
    """Dropped because the learners' queue was full, those before a resume included."""
    evaluation_returns: list[float] = field(default_factory=list)
    """Returns of the evaluation after this iteration, if there was one."""
    evaluation_lengths: list[float] = field(default_factory=list)
    info: dict[str, float] = field(default_factory=dict)
    """Mean over the last 100 episodes of each number of `info` that is a metric."""

    @property
    def evaluation_mean(self) -> float:
        """Returns the mean return of the evaluation, NaN without one."""
        return fmean(self.evaluation_returns) if self.evaluation_returns else math.nan
