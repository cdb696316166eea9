"""The benchmark of several games: scores, which runs it repeats, its table and picture."""

from __future__ import annotations

import json
import math
import os
import signal
from collections.abc import Callable
from dataclasses import asdict, replace
from io import StringIO
from pathlib import Path
from typing import Self

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from bench import games, trainer
from bench.games import (
    BUDGETS,
    GAMES,
    GameRun,
    bench_games,
    draw_curves,
    score_table,
    settings_of,
    thinned,
)
from bench.process import MeasurementError
from bench.trainer import Row, read_progress
from payload.errors import UserError
from payload.tracking.metrics import STEPS
from tests.payload.command_line import in_process, wait_for, with_database
from volley.cli import main

RUNS = "bench-games"
"""Folder of the runs, inside the results folder."""
SMALL = """
env: BreakoutNoFrameskip-v4
config:
  num_env_runners: 0
  num_envs_per_env_runner: 4
  rollout_fragment_length: 8
  image_size: 42
  env_config: {max_episode_frames: 200}
  min_time_s_per_iteration: 0.2
"""
EXPERIMENT = Path(__file__).parents[2] / "experiments/atari.yaml"


def game_run(game: str = "Qbert", seed: int = 1, at_end: float = 2000.0) -> GameRun:
    curve = [(500_000, 400.0), (1_010_000, 850.0), (2_510_000, at_end)]
    return GameRun(game, seed, 2_500_000, 800.0, "abc", curve)


def text_of(runs: list[GameRun]) -> str:
    output = StringIO()
    Console(file=output, width=100).print(score_table(runs))
    return output.getvalue()


def test_a_score_is_read_from_the_first_iteration_that_passes_the_budget() -> None:
    assert [game_run().score(budget) for budget in BUDGETS[:2]] == [850.0, 2000.0]


def test_a_run_that_ended_before_the_budget_has_no_score() -> None:
    assert math.isnan(game_run().score(10_000_000))


@given(st.lists(st.tuples(st.integers(1, 3_000_000), st.integers(-21, 9000)), unique=True))
def test_a_thinned_curve_has_the_same_scores(points: list[tuple[int, int]]) -> None:
    curve = [(steps, float(mean)) for steps, mean in sorted(points)]
    whole, thin = (replace(game_run(), curve=one) for one in (curve, thinned(curve)))
    for budget in BUDGETS:
        assert thin.score(budget) == pytest.approx(whole.score(budget), nan_ok=True)


def test_a_thinned_curve_has_few_points() -> None:
    curve = [(steps, 0.0) for steps in range(2048, 2_500_000, 2048)]
    assert len(thinned(curve)) == 250


def test_the_table_has_the_mean_over_the_seeds_beside_the_score_to_beat() -> None:
    text = text_of([game_run(at_end=1000.0), game_run(seed=2, at_end=2000.0)])
    line = next(line for line in text.splitlines() if "2,500,000" in line)
    assert all(word in line for word in ("1,500", "4,108", "missed", "1,000, 2,000"))


def test_the_picture_has_every_game(tmp_path: Path) -> None:
    path = tmp_path / "games.png"
    draw_curves([game_run(game) for game in GAMES], path)
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("experiment", "games", "said"),
    [
        ("none.yaml", [], "none.yaml: cannot be read"),
        (EXPERIMENT, ["Qbrt"], "--games Qbrt: unknown (did you mean Qbert?)"),
    ],
)
def test_bad_input_is_refused_in_one_line(
    tmp_path: Path, experiment: Path | str, games: list[str], said: str
) -> None:
    with pytest.raises(UserError) as refused:
        bench_games(Path(experiment), games, 1, 1000, tmp_path, None)
    assert str(refused.value).startswith(said)


def test_runs_from_before_a_setting_existed_have_its_default(tmp_path: Path) -> None:
    settings = settings_of(EXPERIMENT)
    older = {name: value for name, value in settings.items() if name != "replay_proportion"}
    path = tmp_path / "runs.json"
    path.write_text(json.dumps({"settings": older, "runs": [asdict(game_run("Qbert"))]}))
    assert games._read(path, settings) == [game_run("Qbert")]


def test_runs_with_other_settings_are_not_taken_for_this_experiments(tmp_path: Path) -> None:
    path = tmp_path / "bench_games_1000.json"
    path.write_text('{"settings": {"run": "IMPALA"}, "runs": []}')
    with pytest.raises(UserError, match="its runs have other settings"):
        bench_games(EXPERIMENT, ["Breakout"], 1, 1000, tmp_path, first_seed=5)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.slow
def test_an_interrupted_run_is_not_resumed_with_other_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> list[Row]:
        raise MeasurementError("killed")

    monkeypatch.setattr(games, "measure_scores", killed)
    assert bench_games(EXPERIMENT, ["Breakout"], 1, 1000, tmp_path, first_seed=5) == 1
    changed = tmp_path / "changed.yaml"
    changed.write_text(EXPERIMENT.read_text().replace("config:\n", "config:\n  lr: 0.123\n"))
    with pytest.raises(UserError, match="its runs have other settings"):
        bench_games(changed, ["Breakout"], 1, 1000, tmp_path, first_seed=5)


def test_a_second_benchmark_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    refusal = pytest.raises(UserError, match="another benchmark trains there")
    with games._only_benchmark_in(tmp_path / RUNS), refusal:
        bench_games(EXPERIMENT, ["Breakout"], 1, 1000, tmp_path, first_seed=None)
    assert not list(tmp_path.glob("*.json"))


def test_an_algorithm_without_one_setting_for_all_games_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["bench", "--games", "--run", "DQN"]) == 2
    assert "--run DQN: --games has settings for APPO and PQN (did you" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(("file", "algorithm"), [("atari", ""), ("atari-pqn", "pqn_")])
def test_runs_that_the_file_has_are_drawn_without_training(
    tmp_path: Path, file: str, algorithm: str
) -> None:
    experiment = EXPERIMENT.with_stem(file)
    path = tmp_path / f"bench_games_{algorithm}2500000.json"
    kept = {"settings": settings_of(experiment), "runs": [asdict(game_run())]}
    path.write_text(json.dumps(kept))
    assert bench_games(experiment, ["Qbert"], 1, 2_500_000, tmp_path, first_seed=1) == 0
    assert path.with_suffix(".png").exists()


class CommandHere:
    """Stand-in for a benchmark's child process: runs `python -m payload` in this process."""

    seconds = 1.0

    def __init__(self, command: list[str], log: Path, measure_memory: bool) -> None:
        assert command[1:3] == ["-m", "payload"]
        self.ended = in_process(log.parent, *command[3:])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def wait_for(self, condition: Callable[[], object], timeout_s: float) -> None:
        assert condition(), self.ended.stdout + self.ended.stderr

    def wait(self, timeout_s: float) -> int:
        return self.ended.returncode


def small_experiment(
    folder: Path, monkeypatch: pytest.MonkeyPatch, more: str = ""
) -> tuple[Path, Path]:
    """Returns an experiment of seconds, which benchmarks train in this process, and results."""
    monkeypatch.setattr(trainer, "Child", CommandHere)
    experiment = folder / "small.yaml"
    experiment.write_text(f"{SMALL}{more}")
    return experiment, with_database(folder, RUNS) / RUNS


@pytest.mark.slow
@pytest.mark.usefixtures("ray_here")
def test_a_run_is_resumed_where_it_was_interrupted_and_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment, results = small_experiment(tmp_path, monkeypatch)
    breakout = ("--env", "BreakoutNoFrameskip-v4", "--seed", "5")
    stop = ("--stop", json.dumps({STEPS: 2000}), "--results", str(results))

    def interrupt(_: Path) -> None:
        wait_for(lambda: len(rows_of(results)) > 1)
        os.kill(os.getpid(), signal.SIGINT)

    in_process(tmp_path, "train", str(experiment), *breakout, *stop, meanwhile=interrupt)
    before = rows_of(results)
    assert before[-1].env_steps < 2000
    for _ in range(2):
        assert bench_games(experiment, ["Breakout"], 1, 2000, tmp_path, first_seed=5) == 0
    # Compared as text: without an episode, the mean return is NaN.
    assert str(rows_of(results)[: len(before)]) == str(before)
    (run,) = json.loads((tmp_path / "bench_games_impala_2000.json").read_text())["runs"]
    assert (run["game"], run["seed"], run["steps"]) == ("Breakout", 5, 2000)


def rows_of(results: Path) -> list[Row]:
    """Returns the progress of the only run."""
    return [row for path in results.glob("runs/*/progress.csv") for row in read_progress(path)]
