"""The statistics of several env runners are those of all their observations together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from gymnasium.vector import SyncVectorEnv

from payload.environments.observation_filter import (
    FilteredObservations,
    MeanStd,
    Moments,
    ObservationStatistics,
)

ROUNDS, EACH, SIZE = 5, 40, 3
Observations = npt.NDArray[np.float32]


@pytest.fixture
def sampled() -> Observations:
    """What two env runners see in each round, [ROUNDS, 2, EACH, SIZE]."""
    numbers = np.random.default_rng(0).normal(50, 3, (ROUNDS, 2, EACH, SIZE))
    return numbers.astype(np.float32)


def assert_of(moments: Moments, observations: Observations) -> None:
    flat = observations.reshape(-1, SIZE).astype(np.float64)
    assert moments.number == len(flat)
    np.testing.assert_allclose(moments.filter.mean, flat.mean(0))
    np.testing.assert_allclose(moments.filter.std, flat.std(0, ddof=1))


def test_all_observations_count_once(sampled: Observations) -> None:
    driver, *runners = (ObservationStatistics() for _ in range(3))
    for seen in sampled:
        for runner, own in zip(runners, seen, strict=True):
            runner.filtered(own)
            driver.add(runner.report())
            driver.add(runner.report())
        for each in (driver, *runners):
            each.adopt(driver.report())
            assert each.total.number == driver.total.number
    assert_of(driver.total, sampled)


def test_reports_that_cross_a_broadcast_count_once(sampled: Observations) -> None:
    driver, *runners = (ObservationStatistics() for _ in range(3))
    broadcast = driver.report()
    for seen in sampled:
        for runner, own in zip(runners, seen, strict=True):
            runner.filtered(own)
            late = runner.report()
            runner.adopt(broadcast)
            driver.add(runner.report())
            driver.add(late)  # Out of order: the epoch after it is known already.
        broadcast = driver.report()
    assert driver.total.number <= sampled[..., 0].size


def test_a_report_of_the_epoch_before_still_counts(sampled: Observations) -> None:
    driver, runner = ObservationStatistics(), ObservationStatistics()
    broadcast = driver.report()
    for seen in sampled[:, 0]:
        runner.filtered(seen)
        driver.add(runner.report())
        runner.adopt(broadcast)
        broadcast = driver.report()
    assert_of(driver.total, sampled[:, 0])


def test_the_drivers_own_observations_count_once(sampled: Observations) -> None:
    driver = ObservationStatistics()
    for seen in sampled[:, 0]:
        driver.filtered(seen)
        driver.add(driver.report())
        driver.adopt(driver.report())
    assert_of(driver.total, sampled[:, 0])


def test_an_evaluation_filters_and_changes_nothing(sampled: Observations) -> None:
    training, evaluation = ObservationStatistics(), ObservationStatistics(learns=False)
    training.filtered(sampled[0, 0])
    evaluation.adopt(training.report())
    filtered = evaluation.filtered(sampled[1, 0])
    assert abs(filtered.mean()) < 1
    assert_of(evaluation.total, sampled[0, 0])


def test_the_file_filters_as_the_training_does(sampled: Observations, tmp_path: Path) -> None:
    statistics = ObservationStatistics()
    filtered = statistics.filtered(sampled[0, 0])
    statistics.total.filter.write(tmp_path / "filter.npz")
    read = MeanStd.read(tmp_path / "filter.npz")
    assert (read(sampled[0, 0]) == filtered).all()
    assert_of(Moments.from_filter(read), sampled[0, 0])


def test_what_never_changes_is_zero_and_what_suddenly_does_is_clipped() -> None:
    statistics = ObservationStatistics()
    constant = np.full((4, 2), 0.1, np.float32)
    assert not statistics.filtered(constant).any()
    assert (statistics.filtered(constant[:1] + 1e9) <= 10).all()
    assert not ObservationStatistics().filtered(constant[:1]).any()


def test_a_vector_says_what_its_filtered_observations_are() -> None:
    from tests.payload.faulty_environment.shifted import Shifted

    env = FilteredObservations(SyncVectorEnv([Shifted] * 3), ObservationStatistics())
    observations: Observations
    observations, _ = env.reset(seed=0)
    assert observations in env.observation_space
    assert env.step(env.action_space.sample())[0] in env.observation_space
