"""Scores on Atari games after few environment steps, beside published ones: `bench --games`."""

from __future__ import annotations

import itertools
import json
import math
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.benchmark import fresh_logs
from bench.process import MeasurementError
from bench.table import machine, number, write_json
from bench.trainer import measure_scores
from payload.errors import UserError, nearest
from payload.experiment.derived_defaults import with_defaults
from payload.experiment.read import read_experiment
from payload.run.driver_lock import acquire

BUDGETS = (1_000_000, 2_500_000, 10_000_000)
"""Environment steps after which a score is read."""
CURVE_STEPS = 10_000
"""Environment steps between two points of a curve. It divides BUDGETS."""

IMPALA, PPO, DOPAMINE = "RLlib's IMPALA", "RLlib's PPO", "Dopamine's best curve"
"""RLlib's scores: ray-project/rl-experiments at 66c7949, with 15 to 32 workers, the best of all
runs after each budget. Dopamine's: google/dopamine, baselines/atari/data, means over five seeds
with sticky actions; the highest of DQN, C51, QR-DQN, IQN and Rainbow after each budget, all with
IMPALA's network."""
MARKERS = {IMPALA: "s", PPO: "^", DOPAMINE: "o"}


@dataclass(frozen=True)
class Game:
    """The scores that others have reached in a game."""

    to_beat: tuple[float, float]
    """Scores after each of the first two of BUDGETS."""
    published: dict[str, tuple[float, float, float]]
    """Scores after each of BUDGETS, by their source."""


GAMES = {
    "Breakout": Game(
        (29, 140), {IMPALA: (29, 140, 397), PPO: (16, 33, 109), DOPAMINE: (111, 266, 307)}
    ),
    "SpaceInvaders": Game(
        (393, 550), {IMPALA: (301, 469, 822), PPO: (393, 550, 764), DOPAMINE: (751, 1502, 14991)}
    ),
    "Qbert": Game(
        (1400, 4108),
        {IMPALA: (455, 850, 3969), PPO: (1400, 4108, 7081), DOPAMINE: (3420, 11753, 15894)},
    ),
    "BeamRider": Game(
        (452, 703), {IMPALA: (425, 567, 1820), PPO: (452, 703, 2565), DOPAMINE: (6838, 6074, 8641)}
    ),
    "Seaquest": Game((378, 900), {DOPAMINE: (2938, 14114, 132050)}),
}


@dataclass(frozen=True)
class GameRun:
    game: str
    seed: int
    steps: int
    """Environment steps at which the run was ended."""
    seconds: float
    """Seconds of training."""
    git_commit: str | None
    curve: list[tuple[int, float]]
    """Environment steps and the mean return of the last 100 episodes."""

    def score(self, budget: int) -> float:
        """Returns the mean return of the first iteration that ends at the budget or after it."""
        return next((mean for steps, mean in self.curve if steps >= budget), math.nan)


def bench_games(
    experiment: Path,
    games: Sequence[str],
    seeds: int,
    steps: int,
    results: Path,
    first_seed: int | None,
) -> int:
    """Trains games with the settings of an experiment; prints, writes and draws their scores.

    Writes bench_games_<steps>.json and .png after every run, for other algorithms than APPO
    bench_games_<algorithm>_<steps>; the runs keep their files in bench-games/. The exit code is 1
    if a run failed.

    Args:
        experiment: Its env and stop are ignored.
        games: Names in GAMES; all if empty.
        first_seed: Seeds count up from here. Runs in the JSON file stay in it and are drawn but not
            repeated, and an interrupted run is resumed. By default the clock draws the seed, and
            the file begins again.

    Raises:
        UserError: A game is unknown, the file's runs have other settings, or another such
            benchmark uses the results folder.
    """
    settings = settings_of(experiment)
    for game in games:
        if game not in GAMES:
            names = ", ".join(GAMES)
            raise UserError(f"--games {game}: unknown{nearest(game, GAMES)}; known: {names}")
    algorithm = "" if settings["run"] == "APPO" else f"{settings['run'].lower()}_"
    path = results / f"bench_games_{algorithm}{steps}.json"
    first = int(time.time()) if first_seed is None else first_seed
    runs = [] if first_seed is None else _read(path, settings)
    picture = path.with_suffix(".png")
    folder = results / "bench-games"
    console = Console(soft_wrap=True, highlight=False)
    measured = {(run.seed, run.game) for run in runs}
    problems: dict[str, str] = {}
    with _only_benchmark_in(folder):
        logs = fresh_logs(folder / "bench-logs")
        about = {**machine(), "settings": settings}
        if not path.exists():  # A run that is interrupted is only resumed with these settings.
            write_json(path, {**about, "runs": []})
        if runs:
            draw_curves(runs, picture)
        for seed, game in itertools.product(range(first, first + seeds), games or GAMES):
            if (seed, game) in measured:
                continue
            console.print(f"Training on {game}, seed {seed} ...")
            log = logs / f"{game}-{seed}.log"
            try:
                rows = measure_scores(experiment, f"{game}NoFrameskip-v4", seed, steps, folder, log)
            except (MeasurementError, OSError) as error:
                problems[f"{game}, seed {seed}"] = str(error)
                console.print(f"{game}, seed {seed} failed: {error}", style="red", markup=False)
                continue
            means = [(r.env_steps, r.return_mean) for r in rows if math.isfinite(r.return_mean)]
            commit, train_s = about["git_commit"], rows[-1].time_total_s
            runs.append(GameRun(game, seed, steps, train_s, commit, thinned(means)))
            write_json(path, {**about, "runs": [asdict(run) for run in runs]})
            draw_curves(runs, picture)
    if runs:
        console.print(score_table(runs))
        console.print(f"Written to {path} and {picture.name}; runs in {folder}")
    return 1 if problems else 0


@contextmanager
def _only_benchmark_in(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("a") as lock:
        if not acquire(lock):
            raise UserError(
                f"{folder}: another benchmark trains there. "
                "Next: --results with another folder, or wait until it has ended"
            )
        yield


def settings_of(experiment: Path) -> dict[str, Any]:
    """Returns the algorithm and its settings, the defaults among them, of every run."""
    given = read_experiment(experiment).experiment
    settings = with_defaults(given, atari=True).model_dump(mode="json", exclude={"seed"})
    return {"run": given.run, **settings}


def _read(path: Path, settings: dict[str, Any]) -> list[GameRun]:
    """Returns the runs that an earlier benchmark with these settings has written."""
    if not path.exists():
        return []
    written = json.loads(path.read_text())
    # A setting that is newer than the file has its default there.
    if {**settings, **written.get("settings", {"run": ""})} != settings:
        raise UserError(
            f"{path}: its runs have other settings than this experiment has today; "
            "move it away, or leave --first-seed out"
        )
    runs: list[dict[str, Any]] = written["runs"]
    return [GameRun(**{**run, "curve": [tuple(point) for point in run["curve"]]}) for run in runs]


def thinned(curve: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """Returns the first point of each CURVE_STEPS environment steps; the scores stay the same."""
    groups = itertools.groupby(curve, key=lambda point: point[0] // CURVE_STEPS)
    return [(steps, round(mean, 2)) for steps, mean in (next(points) for _, points in groups)]


def score_table(runs: list[GameRun]) -> Table:
    """Returns a table of the mean over the seeds, beside the score to beat, for the terminal."""
    table = Table(title="Mean return of 100 episodes, mean over the seeds", title_justify="left")
    table.add_column("Game")
    for column in ("Steps", "Score", "To beat", "", "Seeds"):
        table.add_column(column, justify="right")
    for name, game in GAMES.items():
        for budget, to_beat in itertools.zip_longest(BUDGETS, game.to_beat):
            of_game = [run for run in runs if run.game == name and run.steps >= budget]
            scores = [run.score(budget) for run in of_game]
            if not scores:
                continue
            mean, bar, verdict = statistics.mean(scores), "-", ""
            if to_beat is not None:
                bar = number(to_beat)
                verdict = "[green]met[/green]" if mean >= to_beat else "[red]missed[/red]"
            each = ", ".join(number(score) for score in scores)
            table.add_row(name, f"{budget:,}", number(mean), bar, verdict, each)
    return table


def draw_curves(runs: list[GameRun], path: Path) -> None:
    """Draws the curves of all runs, with the published scores as marks, as a PNG."""
    from matplotlib.figure import Figure as Picture

    names = [name for name in GAMES if any(run.game == name for run in runs)]
    columns = min(3, len(names))
    rows = math.ceil(len(names) / columns)
    picture = Picture(figsize=(4.2 * columns, 3.4 * rows), layout="constrained")
    grid = picture.subplots(rows, columns, squeeze=False).flatten()
    for axes, name in zip(grid, names, strict=False):
        for place, run in enumerate(run for run in runs if run.game == name):
            steps = [step / 1e6 for step, _ in run.curve]
            means = [mean for _, mean in run.curve]
            label = "volley, each seed" if place == 0 else None
            axes.plot(steps, means, color="tab:blue", label=label)
        at = [budget / 1e6 for budget in BUDGETS if budget <= runs[0].steps]
        for whose, scores in GAMES[name].published.items():
            axes.plot(at, scores[: len(at)], MARKERS[whose], color="tab:gray", label=whose)
        axes.set(
            title=name, xlabel="million environment steps", ylabel="mean return of 100 episodes"
        )
        axes.grid(alpha=0.3)
        axes.legend(fontsize="x-small")
    for axes in grid[len(names) :]:
        axes.set_axis_off()
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.savefig(path, dpi=120)
