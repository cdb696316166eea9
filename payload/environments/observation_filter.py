"""`observation_filter: MeanStdFilter`: observations less their mean, divided by their deviation.

RLlib 2.60's connector of this name is not used: what it adds to its mean for an env runner is not
the mean of the new observations but how far they have moved that env runner's own mean, so that the
mean of several env runners falls towards 0. It also gives an evaluation by the driver nothing.
"""

from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple, Self
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import torch
from gymnasium.spaces import Box
from gymnasium.vector import VectorEnv, VectorObservationWrapper
from gymnasium.vector.utils import batch_space
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.core import COMPONENT_ENV_TO_MODULE_CONNECTOR

CLIP = 10.0
"""Largest value of a filtered observation, as RLlib has it."""
SMALL = 1e-8
"""Added to a deviation, as RLlib does."""

Array = npt.NDArray[Any]


class MeanStd(NamedTuple):
    """A filter's computation, without the state that its statistics need to continue."""

    number: int
    mean: Array
    std: Array

    def __call__(self, observations: Array) -> npt.NDArray[np.float32]:
        """Filters observations [..., D]."""
        scaled = (observations - self.mean) / (self.std + SMALL)
        return np.clip(scaled, -CLIP, CLIP).astype(np.float32)

    def in_graph(self, observations: torch.Tensor) -> torch.Tensor:
        """Does the same with a tensor."""
        mean, std = torch.from_numpy(self.mean), torch.from_numpy(self.std + SMALL)
        return ((observations - mean) / std).clamp(-CLIP, CLIP).float()

    def write(self, file: Path) -> None:
        with file.open("wb") as opened:
            np.savez(opened, **self._asdict())

    @classmethod
    def read(cls, file: Path) -> Self:
        """Reads a file that `write` has written; raises OSError, KeyError or ValueError."""
        with np.load(file, allow_pickle=False) as arrays:
            return cls(int(arrays["number"]), arrays["mean"], arrays["std"])


class Moments(NamedTuple):
    """Mean and squared differences of observations, which can be added to others'."""

    number: int = 0
    mean: Array = np.zeros(())
    squares: Array = np.zeros(())
    """Sum of the squared differences from the mean."""

    @classmethod
    def of(cls, observations: Array) -> Self:
        """Returns those of observations [N, D]."""
        mean = observations.mean(0, dtype=np.float64)
        return cls(len(observations), mean, np.square(observations - mean).sum(0))

    def merged(self, other: "Moments") -> "Moments":
        """Returns those of both together (Chan et al. 1979)."""
        number = self.number + other.number
        if not self.number or not other.number:
            return self if self.number else other
        difference = other.mean - self.mean
        mean = self.mean + difference * (other.number / number)
        between = np.square(difference) * (self.number * other.number / number)
        return Moments(number, mean, self.squares + other.squares + between)

    @property
    def filter(self) -> MeanStd:
        if self.number < 2:
            return MeanStd(self.number, self.mean, np.ones_like(self.mean))
        return MeanStd(self.number, self.mean, np.sqrt(self.squares / (self.number - 1)))

    @classmethod
    def from_filter(cls, filter_: MeanStd) -> Self:
        squares = np.square(filter_.std) * max(0, filter_.number - 1)
        return cls(filter_.number, filter_.mean, squares)


class Report(NamedTuple):
    """The state of statistics, which can arrive twice, late or not at all."""

    total: Moments
    """Of all observations that are known."""
    sender: str
    epoch: int
    """How often the sender had begun to count its own from 0."""
    own: Moments
    """Of the sender's own observations in this epoch."""


class ObservationStatistics:
    """The statistics of one env runner; the driver's adds up those of all."""

    def __init__(self, learns: bool = True) -> None:
        """
        Args:
            learns: Whether observations change them; those of an evaluation do not.
        """
        self.learns = learns
        self._name, self._epoch = uuid4().hex, 0
        self._others, self._own = Moments(), Moments()
        self._reports: dict[str, Report] = {}
        """The last one of each other sender, of its latest epoch."""

    @property
    def total(self) -> Moments:
        each = (report.own for report in self._reports.values())
        return reduce(Moments.merged, each, self._others.merged(self._own))

    def filtered(self, observations: Array) -> npt.NDArray[np.float32]:
        """Counts observations [N, D], if they count, and returns them filtered."""
        if self.learns:
            self._own = self._own.merged(Moments.of(observations))
        return self.total.filter(observations)

    def report(self) -> Report:
        return Report(self.total, self._name, self._epoch, self._own)

    def add(self, report: Report) -> None:
        """Adds what another's report says of its own observations, once."""
        if report.sender == self._name:
            return  # RLlib asks the driver too where it samples itself.
        before = self._reports.get(report.sender, report)
        if before.epoch < report.epoch:
            self._others = self._others.merged(before.own)
        if (before.epoch, before.own.number) <= (report.epoch, report.own.number):
            self._reports[report.sender] = report

    def adopt(self, report: Report) -> None:
        """Takes the total of a report as its own, and counts from 0 from here on."""
        if report.sender == self._name and report.total.number == self.total.number:
            return  # RLlib gives the driver its own state back.
        self._others, self._own, self._reports = report.total, Moments(), {}
        self._epoch += 1


class FilteredObservations(VectorObservationWrapper):
    """A vector environment with filtered observations."""

    def __init__(self, env: VectorEnv[Any, Any, Any], statistics: ObservationStatistics) -> None:
        super().__init__(env)
        self._statistics = statistics
        shape = env.single_observation_space.shape
        self.single_observation_space = Box(-CLIP, CLIP, shape, np.float32)
        self.observation_space = batch_space(self.single_observation_space, env.num_envs)

    def observations(self, observations: Any) -> Any:
        return self._statistics.filtered(observations)


class StatisticsConnector(ConnectorV2):
    """Carries the statistics with RLlib's connector states; the observations are filtered before.

    It must be the first connector: RLlib 2.60 merges the n-th state by the n-th connector.
    """

    def __init__(self, statistics: ObservationStatistics, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.statistics = statistics

    def __call__(self, *, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        return batch

    def get_state(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        return {"report": self.statistics.report()}

    def set_state(self, state: dict[str, Any]) -> None:
        self.statistics.adopt(state["report"])

    def merge_states(self, states: Sequence[dict[str, Any]]) -> dict[str, Any]:
        for state in states:
            self.statistics.add(state["report"])
        return self.get_state()


def statistics_of(algorithm: Any) -> ObservationStatistics | None:
    """Returns the statistics of all env runners; None without a filter."""
    # The env runners of the fast path have no such attribute.
    return getattr(algorithm.env_runner, "observation_statistics", None)


def share_with_evaluation(algorithm: Any) -> None:
    """Gives the env runners that evaluate the statistics of the training up to now."""
    if statistics_of(algorithm) is None:
        return
    if not algorithm.config._dont_auto_sync_env_runner_states:  # IMPALA adds each sample's.
        algorithm.env_runner_group.sync_env_runner_states(config=algorithm.config)
    _share(algorithm, algorithm.eval_env_runner_group, local=True)


def begin_with(algorithm: Any, filter_: MeanStd) -> None:
    """Lets a training begin with the statistics of another one."""
    statistics = statistics_of(algorithm)
    assert statistics is not None
    statistics.adopt(Report(Moments.from_filter(filter_), "", 0, Moments()))
    _share(algorithm, algorithm.env_runner_group, local=False)


def _share(algorithm: Any, group: Any, local: bool) -> None:
    states = algorithm.env_runner.get_state(components=[COMPONENT_ENV_TO_MODULE_CONNECTOR])
    state = {COMPONENT_ENV_TO_MODULE_CONNECTOR: states[COMPONENT_ENV_TO_MODULE_CONNECTOR]}
    group.foreach_env_runner(lambda each: each.set_state(state), local_env_runner=local)
