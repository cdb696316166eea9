"""The benchmark of several games: scores, what is repeated, its table and picture."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

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
from payload.errors import UserError

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
    assert all(word in line for word in ("1,500", "1,943", "missed", "1,000, 2,000"))


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


def test_runs_with_other_settings_are_not_taken_for_this_experiments(tmp_path: Path) -> None:
    path = tmp_path / "bench_games_1000.json"
    path.write_text('{"settings": {"run": "IMPALA"}, "runs": []}')
    with pytest.raises(UserError, match="its runs have other settings"):
        bench_games(EXPERIMENT, ["Breakout"], 1, 1000, tmp_path, first_seed=5)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.slow
def test_runs_that_the_file_has_are_drawn_without_training(tmp_path: Path) -> None:
    path = tmp_path / "bench_games_2500000.json"
    kept = {"settings": settings_of(EXPERIMENT), "runs": [asdict(game_run())]}
    path.write_text(json.dumps(kept))
    assert bench_games(EXPERIMENT, ["Qbert"], 1, 2_500_000, tmp_path, first_seed=1) == 0
    assert path.with_suffix(".png").exists()


@pytest.mark.slow
def test_a_run_that_the_file_has_is_not_repeated(tmp_path: Path) -> None:
    for _ in range(2):
        assert bench_games(EXPERIMENT, ["Breakout"], 1, 3000, tmp_path, first_seed=5) == 0
    assert len(list((tmp_path / "bench-games/runs").iterdir())) == 1
    (run,) = json.loads((tmp_path / "bench_games_3000.json").read_text())["runs"]
    assert (run["game"], run["seed"], run["steps"]) == ("Breakout", 5, 3000)
