"""The statistics of `volley bench --learn`: medians, intervals and what they decide."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench import learning, played_games, process, trainer
from bench.intervals import Interval, median_interval, percentile, ratio_interval
from bench.learning import (
    BARS,
    LearningBars,
    LearningReport,
    bench_learning,
    decision,
    learning_table,
)
from bench.played_games import PlayedGames
from bench.trainer import Learned, measure_learning
from payload.errors import UserError
from tests.bench.test_benchmark import PONG, text_of
from tests.bench.test_games import small_experiment
from volley.cli import main


def learned(seed: int, seconds: float | None) -> Learned:
    return Learned(
        seed=seed,
        seconds=seconds,
        env_steps=1_000_000,
        training_s=250.0,
        return_mean=18.2,
        startup_s=12.0,
    )


def test_a_seed_not_solved_or_failed_spoils_the_95th_percentile_but_not_the_median() -> None:
    report = LearningReport(
        "IMPALA", 18.0, LearningBars(median_s=300.0, p95_s=450.0, median_steps=2e6), 5
    )
    for seed, seconds in enumerate([210.0, 290.0, 250.0, None]):
        report.learned.append(learned(seed, seconds))
    report.problems[4] = "no update"
    verdicts = {verdict.name: verdict for verdict in report.verdicts()}
    assert verdicts["median_s"].value == 290.0
    assert verdicts["median_s"].met
    assert verdicts["p95_s"].value == math.inf
    assert not verdicts["p95_s"].met
    assert not verdicts["seeds_solved"].met
    assert verdicts["median_steps"].value == 1_000_000
    text = text_of(learning_table(report))
    assert "failed" in text
    assert "never" in text


def test_a_seed_can_be_read_and_given_again_from_a_narrow_terminal() -> None:
    report = LearningReport("APPO", 18.0, BARS, 1)
    report.learned.append(replace(learned(1796062820, 1210.0), games=PlayedGames(265_216, 19.14)))
    text = text_of(learning_table(report), width=80)
    assert all(value in text for value in ("1796062820", "1,210", "1,000,000", "19.14"))


def test_seeds_that_an_interrupted_benchmark_has_not_measured_count_as_not_solved() -> None:
    report = LearningReport(
        "APPO", 18.0, LearningBars(median_s=300.0, p95_s=450.0, median_steps=2e6), 6
    )
    report.learned.append(learned(0, 210.0))
    solved, *_ = report.verdicts()
    assert not solved.met


def test_an_unknown_algorithm_is_refused_with_its_nearest_name(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--run IMPLA: unknown \(did you mean IMPALA\?\)"):
        bench_learning(PONG, "IMPLA", 1, tmp_path)


def test_an_experiment_file_says_which_algorithm_learns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[str] = []

    def bench(_: Path, run: str, *__: object) -> int:
        runs.append(run)
        return 0

    monkeypatch.setattr(learning, "bench_learning", bench)
    monkeypatch.setattr(process, "unwind_on_signals", lambda: None)
    monkeypatch.chdir(PONG.parents[1])
    for words in ([], ["--experiment", str(PONG)], ["--experiment", str(PONG), "--run", "APPO"]):
        assert main(["bench", "--learn", "--results", str(tmp_path), *words]) == 0
    assert runs == ["APPO", "IMPALA", "APPO"]


@pytest.mark.parametrize(("run", "file"), [("IMPALA", "pong"), ("APPO", "pong-appo")])
def test_each_algorithm_learns_pong_with_settings_of_its_own(
    run: str,
    file: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)  # It has no experiment files.
    monkeypatch.setattr(process, "unwind_on_signals", lambda: None)  # They would stay.
    assert main(["bench", "--learn", "--run", run]) == 2
    assert f"experiments/{file}.yaml" in capsys.readouterr().err


def test_the_interval_of_a_median_has_it_in_most_samples() -> None:
    random = np.random.default_rng(5)
    inside = 0
    for _ in range(100):
        interval = median_interval(random.normal(100, 20, 15).tolist())
        inside += interval.low <= 100 <= interval.high
    assert 88 <= inside <= 100


def test_seeds_that_were_not_solved_make_an_interval_infinite_and_no_number_missing() -> None:
    interval = median_interval([1.0, 2.0, 3.0, math.inf, math.inf])
    assert (interval.value, interval.high) == (3.0, math.inf)
    assert interval.low < 3.0


def test_a_percentile_between_seeds_that_were_not_solved_is_infinite() -> None:
    assert percentile([1.0, 2.0, 3.0], 50) == 2.0
    assert percentile([1.0, math.inf, math.inf], 95) == math.inf
    # The 95th percentile of 21 values is the 20th.
    assert percentile([*range(20), math.inf], 95) == 19.0


def test_a_ratio_is_over_the_same_seeds() -> None:
    seconds = [100.0, 400.0, 150.0, 300.0, 200.0, 250.0]
    ratio = ratio_interval(seconds, [2 * value for value in seconds])
    # Every seed has this ratio: the spread between the seeds is in both, and cancels.
    assert (ratio.value, ratio.low, ratio.high) == (0.5, 0.5, 0.5)


@pytest.mark.parametrize(
    ("interval", "seeds", "decided"),
    [
        (Interval(0.8, 0.7, 0.9), 15, "the first needs less"),
        (Interval(1.2, 1.1, 1.4), 15, "the second needs less"),
        (Interval(0.8, 0.7, 1.1), 15, "not decided"),
        (Interval(0.8, 0.7, 0.9), 4, "not decided"),
        (Interval(math.nan, math.nan, math.nan), 15, "not decided"),
    ],
)
def test_a_ratio_decides_when_its_interval_leaves_1_out(
    interval: Interval, seeds: int, decided: str
) -> None:
    assert decision(interval, seeds) == decided


def test_against_needs_learn(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--against", "experiments/pong-appo.yaml"]) == 2
    assert "bench --learn --against FILE" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.usefixtures("ray_here")
def test_a_seed_ends_at_the_experiments_own_limit_and_then_its_first_good_policy_plays_games(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer, "CHECKPOINT_EVERY_S", 0.01)
    monkeypatch.setattr(played_games, "AT_CURRENT_RETURN", -math.inf)
    monkeypatch.setattr(played_games, "NUM_GAMES", 3)
    stop = "stop: {num_env_steps_sampled_lifetime: 400}\n"
    experiment, results = small_experiment(tmp_path, monkeypatch, stop)
    measured = measure_learning(experiment, None, 5, 18.0, 1000.0, results, tmp_path / "log")
    assert measured.seconds is None
    assert 400 <= measured.env_steps < 1000
    assert measured.games is not None
    assert measured.games.env_steps < measured.env_steps
    assert 0 <= measured.games.return_mean < 10
    assert len(list(results.glob("runs/*/checkpoints/checkpoint_*"))) <= 4


def test_a_seed_that_failed_decides_nothing() -> None:
    arms = []
    for name, seconds in (("fast", 190.0), ("slow", 200.0)):
        report = LearningReport("APPO", 18.0, BARS, 6)
        report.learned += [learned(seed, seconds + seed) for seed in range(6)]
        arms.append(learning.Arm(name, PONG, None, report))
    before = learning._ratios(arms)
    arms[1].report.problems[6] = "No space left on device"
    arms[0].report.learned.append(learned(6, 190.0))
    assert learning._ratios(arms) == before
