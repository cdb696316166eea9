"""This trainer measured as a user runs it: `python -m payload train` and its progress.csv."""

from __future__ import annotations

import csv
import json
import math
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.played_games import PlayedGames, play_games
from bench.process import Child, MeasurementError
from payload.experiment.file import to_yaml
from payload.experiment.read import read_experiment
from payload.experiment.settings import EPISODE_RETURN_MEAN, Experiment
from payload.run.run_folder import RUNS, RunFolder
from payload.tracking.metrics import EPISODES, STEPS, STEPS_TRAINED_PER_S, TIME
from payload.tracking.report import MEAN_OVER

START_TIMEOUT_S = 300.0
"""Time limit of the first learner update."""
SETTLE_S = 15.0
"""Seconds of learning before the throughput is measured; meanwhile MLflow is imported."""
SLOWEST_STEPS_PER_S = 300.0
"""A slower run counts as dead."""
CHECKPOINT_EVERY_S = 15
"""Seconds between two checkpoints of a seed, the first good one of which plays games."""
END_TIMEOUT_S = 300.0
"""How long a run may take beyond its time limit to start, to play and to deliver."""


@dataclass(frozen=True)
class Row:
    """One iteration, as progress.csv states it. Steps are environment steps."""

    env_steps: int
    time_total_s: float
    """Seconds of training."""
    episodes: int
    return_mean: float
    """Mean of the last 100 episodes; NaN before the first."""
    trained_per_s: float


@dataclass(frozen=True)
class Learned:
    """How a seed reached its goal, or did not."""

    seed: int
    seconds: float | None
    """From the command to a mean return at the goal; None if it was not reached in time."""
    env_steps: int
    """Environment steps at the end."""
    training_s: float
    """Seconds of training, without start-up."""
    return_mean: float
    """Mean of the last 100 episodes at the end."""
    startup_s: float | None
    """From the command to the end of the iteration with the first learner update, which is
    up to min_time_s_per_iteration (5 s) late; None if there was none."""
    games: PlayedGames | None = None
    """None if no checkpoint's policy was good enough."""


@dataclass(frozen=True)
class Throughput:
    steps_per_s: float
    """Environment steps sampled per second."""
    cpu_us: dict[str, float]
    """Microseconds of CPU time per environment step, by kind of thread: cpu_time.IN_WORDS."""


class TrainerRun:
    """One `python -m payload train` and what it has reported so far."""

    def __init__(self, child: Child, runs: Path, earlier: set[Path]) -> None:
        """Watches the run that the child makes in `runs`, beside the earlier ones."""
        self.child = child
        self._runs, self._earlier = runs, earlier

    @property
    def folder(self) -> RunFolder | None:
        """The run's folder, once it exists."""
        new = set(self._runs.glob("*")) - self._earlier
        return RunFolder(new.pop()) if new else None

    def rows(self) -> list[Row]:
        folder = self.folder
        if folder is None or not folder.progress_file.exists():
            return []
        return read_progress(folder.progress_file)

    def rows_while_learning(self) -> list[Row]:
        """Returns the iterations from the first learner update on."""
        return rows_while_learning(self.rows())

    def keep_logs(self) -> None:
        """Adds the run's own log to the child's, before its folder is removed."""
        folder = self.folder
        if folder is not None and folder.log.exists():
            with self.child.log.open("a") as file:
                file.write(f"--- {folder.log.name}\n{folder.log.read_text(errors='replace')}")


def read_progress(path: Path) -> list[Row]:
    with path.open() as file:
        return [
            Row(
                int(row[STEPS]),
                float(row[TIME]),
                int(row[EPISODES]),
                float(row[EPISODE_RETURN_MEAN]),
                float(row[STEPS_TRAINED_PER_S]),
            )
            for row in csv.DictReader(file)
        ]


def rows_while_learning(rows: list[Row]) -> list[Row]:
    """Returns the rows from the first one with a learner update on."""
    first = next((i for i, row in enumerate(rows) if row.trained_per_s > 0), len(rows))
    return rows[first:]


def settled(rows: list[Row]) -> list[Row]:
    """Returns the rows from SETTLE_S after the first one on."""
    return [row for row in rows if row.time_total_s >= rows[0].time_total_s + SETTLE_S]


def span_s(rows: list[Row]) -> float:
    """Returns the seconds of training between the first and the last row."""
    return rows[-1].time_total_s - rows[0].time_total_s if rows else 0.0


def steps_per_s(rows: list[Row]) -> float:
    return (rows[-1].env_steps - rows[0].env_steps) / span_s(rows)


def solved(rows: list[Row], goal: float) -> Row | None:
    """Returns the first row whose mean return is over all its episodes and reaches the goal."""
    return next((r for r in rows if r.episodes >= MEAN_OVER and r.return_mean >= goal), None)


def measure_startup(log: Path) -> float:
    """Returns the seconds from the command to the first learner update."""
    # Iterations as short as they get: with the default of 5 s, the end of the iteration
    # of the update would be measured instead.
    with _trainer_aside({"min_time_s_per_iteration": 0.0}, log) as run:
        run.child.wait_for(run.rows_while_learning, START_TIMEOUT_S)
        return run.child.seconds


def measure_throughput(config: dict[str, Any], seconds: float, log: Path) -> Throughput:
    """Measures from SETTLE_S after the first update on.

    Apart from `config` the run has all defaults, including its MLflow run and checkpoints.
    """
    with _trainer_aside(config, log) as run:
        run.child.wait_for(run.rows_while_learning, START_TIMEOUT_S)
        limit_s = 2 * (SETTLE_S + seconds) + START_TIMEOUT_S
        run.child.wait_for(lambda: settled(run.rows_while_learning()), limit_s)
        first, before = run.rows()[-1], run.child.cpu_seconds()

        def measured() -> list[Row]:
            return [row for row in run.rows() if row.env_steps >= first.env_steps]

        run.child.wait_for(lambda: span_s(measured()) >= seconds, limit_s)
        rows, after = measured(), run.child.cpu_seconds()
    steps = rows[-1].env_steps - first.env_steps
    cpu_us = {kind: 1e6 * (after[kind] - before[kind]) / steps for kind in after}
    return Throughput(steps_per_s(rows), cpu_us)


def measure_memory(seconds: float, log: Path) -> int:
    """Returns the peak PSS in bytes of a default run's process tree, Ray's daemons included."""
    with _trainer_aside({}, log, measure_memory=True) as run:
        _learn_for(run, seconds)
        return run.child.peak_memory_bytes


def measure_learning(
    experiment: Path,
    algorithm: str | None,
    seed: int,
    goal: float,
    limit_s: float,
    results: Path,
    log: Path,
) -> Learned:
    """Trains one seed to a mean return of `goal`, or for `limit_s` seconds of training.

    The experiment's limit on environment steps, over which it anneals, holds too.

    Args:
        algorithm: Replaces the experiment's `run`, unless None.
    """
    stop = {EPISODE_RETURN_MEAN: goal, TIME: limit_s}
    limit_steps = read_experiment(experiment).experiment.stop.num_env_steps_sampled_lifetime
    if limit_steps is not None:
        stop[STEPS] = limit_steps
    arguments = [str(experiment), "--seed", str(seed)]
    arguments += ["--checkpoint-every", str(CHECKPOINT_EVERY_S), "--keep-checkpoints", "1000"]
    if algorithm:
        arguments += ["--run", algorithm]
    with _trainer([*arguments, "--stop", json.dumps(stop)], results, log) as run:

        def over() -> bool:
            rows = run.rows()
            if not rows or solved(rows, goal) is not None:
                return bool(rows)
            last = rows[-1]
            return last.time_total_s >= limit_s or last.env_steps >= (limit_steps or math.inf)

        run.child.wait_for(lambda: run.rows_while_learning() or over(), START_TIMEOUT_S)
        startup_s = run.child.seconds if run.rows_while_learning() else None
        run.child.wait_for(over, limit_s + END_TIMEOUT_S)
        seconds = run.child.seconds
        if run.child.wait(END_TIMEOUT_S) != 0:
            run.child.fail()
        rows, folder = run.rows(), run.folder
    assert folder is not None
    games = play_games(folder.checkpoints(), seed)
    folder.checkpoints().prune()
    last, reached = rows[-1], solved(rows, goal) is not None
    return Learned(
        seed=seed,
        seconds=seconds if reached else None,
        env_steps=last.env_steps,
        training_s=last.time_total_s,
        return_mean=last.return_mean,
        startup_s=startup_s,
        games=games,
    )


def measure_scores(
    experiment: Path, env: str, seed: int, steps: int, results: Path, log: Path
) -> list[Row]:
    """Trains one seed for a number of environment steps; returns its iterations.

    A run of the same experiment that was interrupted is resumed.
    """
    stop = {STEPS: steps}
    layer = {"env": env, "config": {"seed": seed}, "stop": stop}
    begun = _begun(results / RUNS, read_experiment(experiment, layer).experiment)
    if begun is None:
        arguments = [str(experiment), "--env", env, "--seed", str(seed), "--stop", json.dumps(stop)]
    else:
        arguments = ["--resume", str(begun)]
    with _trainer(arguments, results, log, resumed=begun) as run:
        run.child.wait_for(run.rows_while_learning, START_TIMEOUT_S)
        limit_s = steps / SLOWEST_STEPS_PER_S + END_TIMEOUT_S
        if run.child.wait(limit_s) != 0:
            run.child.fail()
        return run.rows()


def _begun(runs: Path, experiment: Experiment) -> Path | None:
    """Returns the newest run of an experiment that has a whole checkpoint."""
    wanted = to_yaml(experiment)
    for path in sorted(runs.glob("*"), reverse=True):
        folder = RunFolder(path)
        # Compare the text: another version's experiment may not be valid today.
        same = folder.experiment_file.exists() and folder.experiment_file.read_text() == wanted
        if same and folder.checkpoints().newest_whole() is not None:
            return path
    return None


def _learn_for(run: TrainerRun, seconds: float) -> None:
    """Waits until the run has trained for `seconds` after its first learner update."""
    run.child.wait_for(run.rows_while_learning, START_TIMEOUT_S)
    run.child.wait_for(
        lambda: span_s(run.rows_while_learning()) >= seconds, 2 * seconds + START_TIMEOUT_S
    )


@contextmanager
def _trainer(
    arguments: list[str],
    results: Path,
    log: Path,
    measure_memory: bool = False,
    resumed: Path | None = None,
) -> Iterator[TrainerRun]:
    runs = results / RUNS
    earlier = {path for path in runs.glob("*") if path != resumed}
    command = [sys.executable, "-m", "payload", "train", "--results", str(results), *arguments]
    with Child(command, log, measure_memory) as child:
        yield TrainerRun(child, runs, earlier)


@contextmanager
def _trainer_aside(
    config: dict[str, Any], log: Path, measure_memory: bool = False
) -> Iterator[TrainerRun]:
    """Yields a run without an end, in a temporary folder."""
    results = Path(tempfile.mkdtemp(prefix="payload-bench-"))
    try:
        arguments = ["--config", json.dumps(config)]
        with _trainer(arguments, results, log, measure_memory) as run:
            try:
                yield run
            except MeasurementError:
                run.keep_logs()
                raise
    finally:
        shutil.rmtree(results, ignore_errors=True)
