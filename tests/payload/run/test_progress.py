"""From RLlib's result of an iteration to a report, over resumes, and when to stop."""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ray.rllib.utils.metrics import (
    ALL_MODULES,
    ENV_RUNNER_RESULTS,
    EPISODE_LEN_MEAN,
    EPISODE_RETURN_MEAN,
    LEARNER_RESULTS,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
    NUM_ENV_STEPS_TRAINED_LIFETIME,
    NUM_EPISODES_LIFETIME,
)

from payload.environments.checked_vector import EPISODE_LENGTHS, EPISODE_RETURNS
from payload.experiment.settings import Stop
from payload.run.progress import RECENT_EPISODES, Progress, reason_to_stop
from payload.tracking.report import MEAN_OVER, Report, TrainResult
from payload.tracking.train_result import train_result

NAN = math.nan


def rllib_result(
    returns: Any = NAN,
    lengths: Any = NAN,
    sampled: Any = NAN,
    trained: Any = NAN,
    episodes: Any = NAN,
    **module: Any,
) -> dict[str, Any]:
    """Returns the part of `Algorithm.train`'s result on the fast path that is read."""
    return {
        ENV_RUNNER_RESULTS: {
            EPISODE_RETURNS: returns,
            EPISODE_LENGTHS: lengths,
            NUM_ENV_STEPS_SAMPLED_LIFETIME: sampled,
            NUM_EPISODES_LIFETIME: episodes,
        },
        LEARNER_RESULTS: {
            ALL_MODULES: {NUM_ENV_STEPS_TRAINED_LIFETIME: trained},
            "default_policy": module,
        },
    }


def advance(progress: Progress, result: dict[str, Any], seconds: float = 5.0) -> Report:
    return progress.advance(train_result(result), seconds, env_runners=2)


def full(episode_return: float = 1.0) -> Progress:
    """Returns progress with as many episodes as a mean return needs, all with one return."""
    return Progress(returns=deque([episode_return] * MEAN_OVER, maxlen=MEAN_OVER))


returns_of_iterations = st.lists(
    st.lists(st.integers(-21, 21).map(float), min_size=1, max_size=70), min_size=1, max_size=8
)


@given(returns_of_iterations)
def test_the_mean_return_is_over_the_last_100_episodes(iterations: list[list[float]]) -> None:
    progress = Progress()
    for returns in iterations:
        report = advance(progress, rllib_result(returns))
    last = list(chain(*iterations))[-100:]
    assert report.return_mean == pytest.approx(sum(last) / len(last))


@given(returns_of_iterations)
def test_the_best_and_worst_return_are_of_the_last_100_episodes(
    iterations: list[list[float]],
) -> None:
    progress = Progress()
    for returns in iterations:
        report = advance(progress, rllib_result(np.array(returns)))
    last = list(chain(*iterations))[-100:]
    assert (report.return_min, report.return_max) == (min(last), max(last))


def test_the_mean_length_is_over_the_last_100_episodes() -> None:
    lengths = np.arange(150)
    assert advance(Progress(), rllib_result(lengths=lengths)).length_mean == lengths[-100:].mean()


def test_a_single_episode_that_arrives_as_a_number_counts_once() -> None:
    progress = Progress()
    advance(progress, rllib_result(np.float32(3)))
    assert list(progress.returns) == [3]


def test_an_iteration_without_episodes_keeps_the_mean() -> None:
    progress = Progress()
    advance(progress, rllib_result([1.0, 2.0]))
    assert advance(progress, rllib_result(NAN)).return_mean == 1.5


def test_the_mean_is_unknown_before_the_first_episode() -> None:
    assert math.isnan(advance(Progress(), rllib_result()).return_mean)


def test_on_rllibs_own_path_the_mean_return_is_rllibs() -> None:
    progress = Progress()
    for mean in (10.0, 20.0):
        sampled = {EPISODE_RETURN_MEAN: mean, EPISODE_LEN_MEAN: mean, NUM_EPISODES_LIFETIME: 200}
        report = advance(progress, {ENV_RUNNER_RESULTS: sampled})
    assert report.return_mean == 20


def test_on_rllibs_own_path_100_episodes_make_a_full_mean() -> None:
    progress = Progress()
    sampled = {EPISODE_RETURN_MEAN: 10.0, EPISODE_LEN_MEAN: 10.0, NUM_EPISODES_LIFETIME: 100}
    advance(progress, {ENV_RUNNER_RESULTS: sampled})
    assert progress.has_full_mean


@pytest.mark.parametrize(
    ("name", "count"), [("env_steps", 1000), ("env_steps_trained", 900), ("episodes", 7)]
)
def test_a_counter_is_a_whole_number(name: str, count: int) -> None:
    result = rllib_result(sampled=np.float64(1000), trained=np.int64(900), episodes=7.0)
    value = getattr(advance(Progress(), result), name)
    assert (value, type(value)) == (count, int)


@pytest.mark.parametrize(
    ("name", "count"), [("env_steps", 1000), ("env_steps_trained", 900), ("episodes", 7)]
)
def test_a_counter_stays_when_rllib_has_no_number_for_it(name: str, count: int) -> None:
    progress = Progress()
    advance(progress, rllib_result(sampled=1000, trained=900, episodes=7))
    assert getattr(advance(progress, rllib_result()), name) == count


def test_steps_dropped_add_up_over_iterations_and_a_resume() -> None:
    progress = Progress()
    for dropped in (100, 0, 30):
        progress = Progress.from_json(json.loads(json.dumps(progress.to_json())))
        report = progress.advance(TrainResult(env_steps_dropped=dropped), 1.0, env_runners=1)
    assert report.env_steps_dropped == 130


def test_a_result_without_any_section_is_survived() -> None:
    assert advance(Progress(env_steps=5), {}).env_steps == 5


def test_throughput_is_of_the_iteration_alone() -> None:
    progress = Progress(env_steps=10_000, env_steps_trained=8000)
    report = advance(progress, rllib_result(sampled=11_000, trained=8500), seconds=2)
    assert (report.sampled_per_s, report.trained_per_s) == (500, 250)


def test_seconds_and_iterations_add_up() -> None:
    progress = Progress(time_total_s=100, iteration=10)
    advance(progress, rllib_result(), seconds=2)
    report = advance(progress, rllib_result(), seconds=3)
    assert (report.time_total_s, report.iteration) == (105, 12)


def test_the_env_runners_alive_are_reported() -> None:
    assert Progress().advance(TrainResult(), 1.0, env_runners=3).env_runners == 3


def test_the_best_return_waits_for_100_episodes() -> None:
    progress = Progress()
    advance(progress, rllib_result([20.0] * 99))
    assert progress.best_return == -math.inf


def test_the_best_return_is_the_highest_mean_so_far() -> None:
    progress = full(5.0)
    advance(progress, rllib_result())
    advance(progress, rllib_result([0.0] * 100))
    assert progress.best_return == 5


def test_the_first_return_waits_for_100_episodes() -> None:
    progress = Progress()
    advance(progress, rllib_result([20.0] * 99))
    assert math.isnan(progress.first_return)


def test_the_first_return_stays_what_it_was() -> None:
    progress = Progress()
    advance(progress, rllib_result([-20.0] * 100))
    advance(progress, rllib_result([5.0] * 100))
    assert progress.first_return == -20


# How far on the way to the end


@pytest.mark.parametrize(
    ("current", "fraction"), [(-20.0, 0), (-1.0, 0.5), (18.0, 1), (21.0, 1)], ids=str
)
def test_the_way_to_a_return_is_measured_from_the_first_one(
    current: float, fraction: float
) -> None:
    progress = full()
    progress.first_return = -20.0
    progress.best_current_return = current
    assert progress.towards(Stop(episode_return_mean=18)) == fraction


def test_a_return_goal_is_not_neared_before_100_episodes() -> None:
    progress = Progress(first_return=-20.0, best_current_return=10.0)
    assert progress.towards(Stop(episode_return_mean=18)) == 0


def test_a_first_return_above_the_goal_is_the_end() -> None:
    progress = full()
    progress.first_return = progress.best_current_return = 19.0
    assert progress.towards(Stop(episode_return_mean=18)) == 1


# The current return


def sampled(rewards: float, steps: int) -> TrainResult:
    """Returns the result of an iteration without a finished episode."""
    return TrainResult(rewards_sampled=rewards, steps_sampled=steps)


def played(length: int = 2000) -> Progress:
    """Returns progress with episodes of one length and returns between -21 and 21."""
    returns = deque(np.linspace(-21, 21, MEAN_OVER).tolist(), maxlen=MEAN_OVER)
    return Progress(returns=returns, lengths=deque([length] * MEAN_OVER, maxlen=MEAN_OVER))


def test_the_current_return_is_an_episode_at_the_rate_of_reward_of_now() -> None:
    progress = played()
    progress.advance(sampled(rewards=30.0, steps=10_000), seconds=1, env_runners=1)
    assert progress.current_return == 6.0


def test_the_current_return_forgets_what_was_long_ago() -> None:
    progress = played()
    progress.advance(sampled(rewards=-1000.0, steps=20_000), seconds=1, env_runners=1)
    for _ in range(3):
        progress.advance(sampled(rewards=10.0, steps=10_000), seconds=1, env_runners=1)
    assert progress.current_return == 2.0


def test_the_current_return_is_the_mean_where_no_rate_is_known() -> None:
    assert full().current_return == np.mean(full().returns)


def test_the_current_return_is_of_episodes_as_long_as_the_last_ones() -> None:
    progress = played(length=4000)
    progress.lengths.extend([2000] * RECENT_EPISODES)
    progress.advance(sampled(rewards=30.0, steps=10_000), seconds=1, env_runners=1)
    assert progress.current_return == 6.0


@pytest.mark.parametrize(("rewards", "bound"), [(1000.0, 21.0), (-1000.0, -21.0)])
def test_the_current_return_is_within_what_episodes_returned(rewards: float, bound: float) -> None:
    progress = played()
    progress.advance(sampled(rewards, steps=10_000), seconds=1, env_runners=1)
    assert progress.current_return == bound


@pytest.mark.parametrize(("rewards", "bound"), [(1000.0, 25.0), (-1000.0, -30.0)])
def test_the_return_so_far_of_an_episode_in_progress_counts_too(
    rewards: float, bound: float
) -> None:
    progress = played()
    result = replace(
        sampled(rewards, steps=10_000), return_so_far_min=-30.0, return_so_far_max=25.0
    )
    progress.advance(result, seconds=1, env_runners=1)
    assert progress.current_return == bound


def test_the_current_return_is_unknown_before_the_first_episode_ends() -> None:
    progress = Progress()
    progress.advance(sampled(rewards=1.0, steps=10_000), seconds=1, env_runners=1)
    assert math.isnan(progress.current_return)


def test_a_policy_that_gets_worse_does_not_go_back_on_its_way() -> None:
    progress, stop = played(length=1000), Stop(episode_return_mean=18)
    progress.first_return = -20.0
    progress.advance(sampled(rewards=150.0, steps=10_000), seconds=1, env_runners=1)
    ahead = progress.towards(stop)
    progress.advance(sampled(rewards=-100.0, steps=10_000), seconds=1, env_runners=1)
    assert 0 < ahead == progress.towards(stop)


@pytest.mark.parametrize(
    "stop",
    [
        Stop(time_total_s=100),
        Stop(num_env_steps_sampled_lifetime=4000),
        Stop(training_iteration=20),
        Stop(num_env_steps_sampled_lifetime=4000, training_iteration=1000),
        Stop(num_env_steps_sampled_lifetime=4000, time_total_s=26),
    ],
    ids=["time", "steps", "iterations", "the nearest", "no time beside steps"],
)
def test_the_way_to_a_limit_is_measured_from_nothing(stop: Stop) -> None:
    assert Progress(time_total_s=25, env_steps=1000, iteration=5).towards(stop) == 0.25


@pytest.mark.parametrize(("time_total_s", "expected"), [(50.0, 0.5), (90.0, 0.9)])
def test_the_way_is_that_to_the_nearer_of_goal_and_budget(
    time_total_s: float, expected: float
) -> None:
    progress = full()
    progress.time_total_s = time_total_s
    progress.first_return, progress.best_current_return = 0.0, 5.0
    assert progress.towards(Stop(episode_return_mean=10, time_total_s=100)) == expected


def test_a_budget_counts_before_there_is_a_mean_of_100_episodes() -> None:
    progress = Progress(time_total_s=60)
    assert progress.towards(Stop(episode_return_mean=10, time_total_s=100)) == 0.6


def test_the_time_of_evaluations_does_not_count() -> None:
    progress = Progress()
    progress.advance(TrainResult(), 40.0, env_runners=1, evaluation_s=30.0)
    progress.advance(TrainResult(), 10.0, env_runners=1)
    assert progress.towards(Stop(time_total_s=100)) == 0.2
    assert Progress.from_json(json.loads(json.dumps(progress.to_json()))).evaluation_s == 30.0


def test_without_a_criterion_there_is_nowhere_to_go() -> None:
    assert Progress(time_total_s=1000).towards(Stop()) == 0


@given(
    st.builds(
        Progress,
        time_total_s=st.floats(0, 1e9),
        iteration=st.integers(0, 10**9),
        env_steps=st.integers(0, 10**12),
        env_steps_trained=st.integers(0, 10**12),
        episodes=st.integers(0, 10**9),
        first_return=st.floats(),
        best_return=st.floats(allow_nan=False),
        returns=st.lists(st.floats(allow_nan=False), max_size=100).map(deque),
        lengths=st.lists(st.floats(allow_nan=False), max_size=100).map(deque),
    )
)
def test_progress_written_as_json_is_the_same_when_read(progress: Progress) -> None:
    text = json.dumps(progress.to_json())
    assert json.dumps(Progress.from_json(json.loads(text)).to_json()) == text


def test_progress_after_numpy_results_can_be_written_as_json() -> None:
    progress = Progress()
    advance(progress, rllib_result(np.array([1.0, 2.0], np.float32), np.array([3, 4]), np.int64(5)))
    assert json.dumps(progress.to_json())


def test_a_resumed_run_still_means_over_100_episodes() -> None:
    progress = Progress.from_json(full(0.0).to_json())
    assert advance(progress, rllib_result([1.0] * 50)).return_mean == 0.5


@pytest.mark.parametrize(
    ("stop", "report", "reason"),
    [
        (Stop(time_total_s=60), {"time_total_s": 60.0}, "time limit of 60 s reached"),
        (
            Stop(num_env_steps_sampled_lifetime=5000),
            {"env_steps": 5120},
            "limit of 5,000 environment steps reached",
        ),
        (Stop(training_iteration=3), {"iteration": 3}, "limit of 3 iterations reached"),
        (
            Stop(episode_return_mean=18),
            {"return_mean": 18.25},
            "mean return 18.25 reached 18",
        ),
        (Stop(num_episodes_lifetime=50), {"episodes": 51}, "limit of 50 episodes reached"),
        (
            Stop(episode_len_mean=195),
            {"length_mean": 195.4},
            "mean episode length 195 reached 195",
        ),
    ],
    ids=["time", "steps", "iterations", "return", "episodes", "length"],
)
def test_a_met_criterion_is_the_reason_to_stop(
    make_report: Callable[..., Report], stop: Stop, report: dict[str, Any], reason: str
) -> None:
    assert reason_to_stop(stop, make_report(**report), full()) == reason


@pytest.mark.parametrize(
    "stop",
    [
        Stop(time_total_s=60),
        Stop(num_env_steps_sampled_lifetime=5000),
        Stop(training_iteration=3),
        Stop(episode_return_mean=18),
        Stop(num_episodes_lifetime=10**9),
        Stop(episode_len_mean=10**9),
        Stop(),
    ],
    ids=["time", "steps", "iterations", "return", "episodes", "length", "none"],
)
def test_an_unmet_criterion_is_not_a_reason_to_stop(
    make_report: Callable[..., Report], stop: Stop
) -> None:
    report = make_report(time_total_s=59.9, env_steps=4999, iteration=2, return_mean=17.9)
    assert reason_to_stop(stop, report, full()) is None


def test_a_mean_return_of_fewer_than_100_episodes_stops_nothing(
    make_report: Callable[..., Report],
) -> None:
    progress = Progress(returns=deque([21.0] * 99, maxlen=MEAN_OVER))
    report = make_report(return_mean=21.0)
    stop = Stop(episode_return_mean=18, episode_len_mean=1)
    assert reason_to_stop(stop, report, progress) is None


def test_whichever_criterion_is_met_first_stops(make_report: Callable[..., Report]) -> None:
    stop = Stop(episode_return_mean=18, time_total_s=60)
    report = make_report(time_total_s=61.0, return_mean=-21.0)
    assert reason_to_stop(stop, report, full()) == "time limit of 60 s reached"


# Evaluation


def evaluated(*means: float) -> Progress:
    """Returns progress with a two-episode evaluation in each iteration, except where NaN."""
    progress = Progress()
    for mean in means:
        returns = [] if math.isnan(mean) else [mean - 1, mean + 1]
        progress.advance(TrainResult(evaluation_returns=returns), 1.0, 1)
    return progress


def test_the_best_evaluation_is_the_highest_so_far() -> None:
    assert evaluated(3, NAN, 8, 5, NAN).best_evaluation == 8


def test_an_iteration_without_evaluation_has_no_evaluations_return() -> None:
    assert evaluated(3, NAN).evaluation_return == -math.inf


def test_the_way_to_an_evaluations_return_is_measured_from_the_first_one() -> None:
    stop = Stop(evaluation_return_mean=13.0)
    assert evaluated(3, 8, NAN).towards(stop) == 0.5


def test_an_evaluation_that_reaches_its_goal_is_the_reason_to_stop(
    make_report: Callable[..., Report],
) -> None:
    stop = Stop(evaluation_return_mean=10.0)
    report = make_report(evaluation_returns=[9.0, 12.0])
    assert reason_to_stop(stop, report, Progress()) == (
        "mean return of the evaluation 10.50 reached 10"
    )
    assert reason_to_stop(stop, make_report(), Progress()) is None
