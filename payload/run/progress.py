"""The progress of a run from iteration to iteration, and when it stops."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from payload.experiment.settings import Stop
from payload.tracking.report import MEAN_OVER, Report, TrainResult

RECENT_STEPS = 30_000
"""Environment steps over which the current return takes the rate of reward."""
RECENT_EPISODES = 20
"""Episodes over which it takes the mean length."""
TIME = "time"
"""The name of the time limit."""


@dataclass
class Progress:
    """The state of a run that lasts from iteration to iteration, and over a resume."""

    time_total_s: float = 0.0
    iteration: int = 0
    env_steps: int = 0
    env_steps_trained: int = 0
    env_steps_dropped: int = 0
    episodes: int = 0
    first_return: float = math.nan
    """First mean return of 100 episodes: the start of the way to the goal."""
    best_return: float = -math.inf
    """Best mean return of 100 episodes."""
    best_current_return: float = -math.inf
    """Best current return since there was a mean of 100 episodes."""
    first_evaluation: float | None = None
    """Mean return of the first evaluation."""
    last_evaluation: float | None = None
    best_evaluation: float = -math.inf
    evaluation_s: float = 0.0
    """The part of time_total_s during which training waited for evaluations."""
    evaluation_return: float = -math.inf
    """Mean return of the evaluation after the last iteration; -inf without one."""
    recent: deque[tuple[float, float]] = field(default_factory=deque)
    """Rewards and steps of the last iterations, at least RECENT_STEPS if there are that many."""
    so_far: list[float] = field(default_factory=list)
    """Lowest and highest return so far of the episodes in progress, as of the last iteration."""
    returns: deque[float] = field(default_factory=lambda: deque(maxlen=MEAN_OVER))
    lengths: deque[float] = field(default_factory=lambda: deque(maxlen=MEAN_OVER))
    info: dict[str, deque[float]] = field(default_factory=dict)
    """Numbers of `info` of the last episodes."""

    def advance(
        self, result: TrainResult, seconds: float, env_runners: int, evaluation_s: float = 0.0
    ) -> Report:
        """Adds the result of an iteration that took `seconds`; returns its report.

        Args:
            evaluation_s: The part of `seconds` during which training waited for an evaluation.
        """
        self.evaluation_s += evaluation_s
        env_steps = _count_or(result.env_steps, self.env_steps)
        trained = _count_or(result.env_steps_trained, self.env_steps_trained)
        self.episodes = _count_or(result.episodes, self.episodes)
        self.env_steps_dropped += result.env_steps_dropped
        self._look_back_on(result)
        self.returns.extend(result.returns)
        self.lengths.extend(result.lengths)
        for name, values in result.info.items():
            self.info.setdefault(name, deque(maxlen=MEAN_OVER)).extend(values)
        report = Report(
            iteration=self.iteration + 1,
            time_total_s=self.time_total_s + seconds,
            env_steps=env_steps,
            env_steps_trained=trained,
            sampled_per_s=(env_steps - self.env_steps) / seconds,
            trained_per_s=(trained - self.env_steps_trained) / seconds,
            episodes=self.episodes,
            return_mean=_reduce(np.mean, self.returns),
            return_min=_reduce(np.min, self.returns),
            return_max=_reduce(np.max, self.returns),
            current_return=self.current_return,
            length_mean=_reduce(np.mean, self.lengths),
            env_runners=env_runners,
            values=result.values,
            env_steps_dropped=self.env_steps_dropped,
            evaluation_returns=result.evaluation_returns,
            evaluation_lengths=result.evaluation_lengths,
            info={name: _reduce(np.mean, values) for name, values in self.info.items()},
        )
        self.iteration, self.time_total_s = report.iteration, report.time_total_s
        self.env_steps, self.env_steps_trained = env_steps, trained
        if self.has_full_mean:
            if math.isnan(self.first_return):
                self.first_return = report.return_mean
            self.best_return = max(self.best_return, report.return_mean)
            self.best_current_return = max(self.best_current_return, report.current_return)
        self._evaluated(report.evaluation_mean)
        return report

    def _evaluated(self, mean: float) -> None:
        """Adds an evaluation's mean return, NaN where there was none."""
        self.evaluation_return = -math.inf
        if math.isnan(mean):
            return
        if self.first_evaluation is None:
            self.first_evaluation = mean
        self.evaluation_return = self.last_evaluation = mean
        self.best_evaluation = max(self.best_evaluation, mean)

    def _look_back_on(self, result: TrainResult) -> None:
        if math.isnan(result.rewards_sampled) or not result.steps_sampled > 0:
            return
        so_far = [result.return_so_far_min, result.return_so_far_max]
        self.so_far = [value for value in so_far if not math.isnan(value)]
        self.recent.append((result.rewards_sampled, result.steps_sampled))
        while sum(steps for _, steps in self.recent) - self.recent[0][1] >= RECENT_STEPS:
            self.recent.popleft()

    @property
    def has_full_mean(self) -> bool:
        """Whether the mean return covers MEAN_OVER episodes."""
        return len(self.returns) == MEAN_OVER

    @property
    def full_mean(self) -> float:
        """Returns the mean return of the last 100 episodes; -inf while there are fewer."""
        return _reduce(np.mean, self.returns) if self.has_full_mean else -math.inf

    @property
    def current_return(self) -> float:
        """Returns what an episode would return at the rate of reward of the last steps.

        This is early: the policy changes while the 100 episodes of a mean are played. The length is
        that of finished episodes, too long for a policy that has learned to win quickly; so the
        estimate stays within the returns of the last 100 episodes and of those in progress, and
        never exceeds what the game can return.
        """
        if not self.recent:
            return _reduce(np.mean, self.returns)
        rewards, steps = (sum(values) for values in zip(*self.recent, strict=True))
        lengths = deque(self.lengths, maxlen=RECENT_EPISODES)
        if not lengths:
            return math.nan
        seen = [*self.returns, *self.so_far]
        return float(np.clip(rewards / steps * np.mean(lengths), min(seen), max(seen)))

    def towards(self, stop: Stop) -> float:
        """Returns how far the run is on its way to the nearest stop criterion, in [0, 1].

        On the way to a return it is measured by the best current return, which does not depend on
        the speed of the machine or on luck. It never decreases: a policy made more random after a
        setback would fall back further.
        """
        fractions = [self.used(stop)]
        if stop.episode_return_mean is not None and self.has_full_mean:
            span = stop.episode_return_mean - self.first_return
            fractions.append(_fraction(self.best_current_return - self.first_return, span))
        if stop.evaluation_return_mean is not None and self.first_evaluation is not None:
            span = stop.evaluation_return_mean - self.first_evaluation
            fractions.append(_fraction(self.best_evaluation - self.first_evaluation, span))
        return max(fractions)

    def used(self, stop: Stop) -> float:
        """Returns the used share of the limits that schedules follow, in [0, 1].

        Time counts only if no other limit is set, and without evaluations; otherwise the result of
        training would depend on the machine's speed.
        """
        limits = limits_of(stop, self)
        fractions = [limit.fraction for limit in limits if limit.name != TIME]
        if fractions or stop.time_total_s is None:
            return max(fractions, default=0.0)
        return _fraction(self.time_total_s - self.evaluation_s, stop.time_total_s)

    def to_json(self) -> dict[str, Any]:
        lists = {name: list(getattr(self, name)) for name in ("recent", "returns", "lengths")}
        info = {name: list(values) for name, values in self.info.items()}
        return {**vars(self), **lists, "info": info}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Progress:
        returns, lengths = (deque(values[k], maxlen=MEAN_OVER) for k in ("returns", "lengths"))
        recent = deque((rewards, steps) for rewards, steps in values["recent"])
        # Checkpoints of earlier versions have none.
        info = {name: deque(last, MEAN_OVER) for name, last in values.get("info", {}).items()}
        own = {"recent": recent, "returns": returns, "lengths": lengths, "info": info}
        return cls(**{**values, **own})


@dataclass(frozen=True)
class Limit:
    """A limit of a run's time, steps, episodes or iterations, and how much of it is used."""

    name: str
    unit: str
    used: float
    allowed: float

    @property
    def fraction(self) -> float:
        return _fraction(self.used, self.allowed)

    def remaining_s(self, time_total_s: float) -> float:
        """Returns the seconds until it is reached, at the mean speed so far."""
        left = max(0.0, self.allowed - self.used)
        if self.name == TIME:
            return left
        return left * time_total_s / self.used if self.used else math.inf


def limits_of(stop: Stop, now: Progress | Report) -> list[Limit]:
    """Returns the limits that are set."""
    limits = [
        (TIME, "s", now.time_total_s, stop.time_total_s),
        ("steps", "environment steps", now.env_steps, stop.num_env_steps_sampled_lifetime),
        ("episodes", "episodes", now.episodes, stop.num_episodes_lifetime),
        ("iterations", "iterations", now.iteration, stop.training_iteration),
    ]
    return [
        Limit(name, unit, used, allowed)
        for name, unit, used, allowed in limits
        if allowed is not None
    ]


def reason_to_stop(stop: Stop, report: Report, progress: Progress) -> str | None:
    """Returns the criterion that is met, in words, or None."""
    if (
        stop.episode_return_mean is not None
        and progress.has_full_mean
        and report.return_mean >= stop.episode_return_mean
    ):
        return f"mean return {report.return_mean:.2f} reached {stop.episode_return_mean:g}"
    length = stop.episode_len_mean
    if length is not None and progress.has_full_mean and report.length_mean >= length:
        return f"mean episode length {report.length_mean:.0f} reached {length:g}"
    for name, enough in stop.info.items():
        mean = report.info.get(name, math.nan)
        if len(progress.info.get(name, ())) == MEAN_OVER and mean >= enough:
            return f"mean {name} {mean:.4g} reached {enough:g}"
    goal = stop.evaluation_return_mean
    if goal is not None and report.evaluation_mean >= goal:
        return f"mean return of the evaluation {report.evaluation_mean:.2f} reached {goal:g}"
    for limit in limits_of(stop, report):
        if limit.used >= limit.allowed:
            kind = "time limit" if limit.name == "time" else "limit"
            return f"{kind} of {limit.allowed:,.0f} {limit.unit} reached"
    return None


def _fraction(part: float, whole: float) -> float:
    return min(1.0, max(0.0, part / whole)) if whole > 0 else 1.0


def _count_or(value: int | None, otherwise: int) -> int:
    return otherwise if value is None else value


def _reduce(function: Any, values: Sequence[float]) -> float:
    return float(function(values)) if values else math.nan
