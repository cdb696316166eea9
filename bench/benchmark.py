"""Benchmarks: this trainer beside stock RLlib and the emulator's limit, and time to learn.

Measurements run one after the other, each in fresh processes with a Ray of its own, so
that all meet the same machine: compare only figures of one run of the benchmark.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console

from bench.parts import DRIVER_ENV_RUNNERS, Part, parts
from bench.process import MeasurementError
from bench.table import (
    Bar,
    Comparison,
    Figure,
    LearningBars,
    LearningReport,
    comparison_table,
    figure_table,
    learning_table,
    machine,
    seed_line,
    write_json,
)
from bench.trainer import measure_learning
from payload.errors import UserError, nearest
from payload.experiment.read import read_experiment
from payload.experiment.settings import ALGORITHMS
from payload.run.ray_cluster import available_cpus

STOCK_BAR = Bar(9.5, "at least")
"""Required ratio of the trainer's environment steps per second to stock RLlib's."""
EMULATOR_BAR = Bar(0.78, "at least")
"""Share of the emulator's limit that the trainer must reach."""
STARTUP_BAR = Bar(11.0, "at most")
"""Seconds from the command to the first learner update."""
MEMORY_BAR = Bar(3.0, "at most")
"""GB of the whole process tree."""
FRAGMENT_BAR = Bar(256.0, "at most")
"""Bytes sent per environment step of Pong at the default size."""
CALLBACK_BAR = Bar(1.0, "at most")
"""Percent of a core's time that MLflow takes."""
DRIVER_BAR = Bar(1.1, "at most")
"""The driver's cost per step must not grow with the env runners; 10 % is noise."""

GOAL = 18.0
"""Mean return of 100 episodes at which Pong (best: 21) counts as solved."""
LEARNING_LIMIT_S = 1200.0
"""Seconds of training after which a seed counts as not solved."""
LEARNING_BARS = LearningBars(median_s=200.0, worst_s=330.0)


def bench(seconds: float, results: Path) -> int:
    """Measures this trainer, what it is compared with and its parts; prints and writes bench.json.

    A measurement lasts `seconds`, plus start-up. The exit code is 1 if a measurement failed; the
    others still run. Logs are in bench-logs/.
    """
    check_system()
    console = Console(soft_wrap=True, highlight=False)
    about = machine()
    logs = results / "bench-logs"
    figures, problems = measure_parts(parts(seconds, available_cpus()), logs, console)
    compared = compare({figure.name: figure.value for figure in figures})
    path = results / "bench.json"
    write_json(
        path,
        {
            **about,
            "seconds": seconds,
            "figures": {figure.name: figure.to_json() for figure in figures},
            "comparisons": {comparison.name: comparison.to_json() for comparison in compared},
            "problems": problems,
        },
    )
    console.print(figure_table(figures))
    console.print(comparison_table(compared))
    console.print(f"Written to {path}; logs in {logs}")
    return 1 if problems else 0


def check_system() -> None:
    """Raises UserError unless CPU time and memory can be read as on Linux."""
    if not hasattr(time, "pthread_getcpuclockid"):
        raise UserError("bench: needs Linux to measure CPU time and memory; bench --learn does not")


def measure_parts(
    wanted: list[Part], logs: Path, console: Console
) -> tuple[list[Figure], dict[str, str]]:
    """Measures one part after the other; returns the figures, and why a part failed."""
    fresh_logs(logs)
    figures: list[Figure] = []
    problems: dict[str, str] = {}
    for part in wanted:
        console.print(f"Measuring {part.name} ...")
        try:
            figures += part.measure(logs / part.log_name)
        except (MeasurementError, OSError) as error:
            problems[part.name] = str(error)
            console.print(f"{part.name} failed: {error}", style="red", markup=False)
    return figures, problems


def bench_learning(
    experiment: Path, run: str, seeds: int, results: Path, first_seed: int | None = None
) -> int:
    """Measures the time from the command to a mean return of 18, start-up included.

    Writes bench_learn_<run>.json after every seed; the runs keep their files in bench-learn-<run>/.
    The exit code is 1 if a run failed; missing the goal in time is not a failure.

    Args:
        experiment: Its run and stop are ignored.
        first_seed: Seeds count up from here. By default it comes from the clock, so that the seeds
            are not those that the defaults were tuned on.
    """
    read_experiment(experiment)
    if run not in ALGORITHMS:
        names = ", ".join(ALGORITHMS)
        raise UserError(f"--run {run}: unknown{nearest(run, ALGORITHMS)}; known: {names}")
    console = Console(soft_wrap=True, highlight=False)
    about = machine()
    folder = results / f"bench-learn-{run}"
    logs = fresh_logs(folder / "bench-logs")
    path = results / f"bench_learn_{run}.json"
    report = LearningReport(run, GOAL, LEARNING_BARS, seeds)
    try:
        first = int(time.time()) if first_seed is None else first_seed
        for seed in range(first, first + seeds):
            console.print(f"Training {run}, seed {seed} ...")
            log = logs / f"seed-{seed}.log"
            try:
                learned = measure_learning(
                    experiment, run, seed, GOAL, LEARNING_LIMIT_S, folder, log
                )
            except (MeasurementError, OSError) as error:
                report.problems[seed] = str(error)
                console.print(f"seed {seed} failed: {error}", style="red", markup=False)
            else:
                report.learned.append(learned)
                console.print(seed_line(learned))
            write_json(path, {**about, **report.to_json()})
    finally:
        if report.num_seeds > 0:
            console.print(learning_table(report))
            console.print(comparison_table(report.verdicts()))
            console.print(f"Written to {path}; runs in {folder}")
    return 1 if report.problems else 0


def compare(figures: Mapping[str, float]) -> list[Comparison]:
    """Compares figures, by name, with each other; omits those of a failed part.

    Trainer and stock RLlib each count with the number of env runners that serves them best.
    """

    def best(prefix: str) -> float:
        return max((v for k, v in figures.items() if k.startswith(prefix)), default=math.nan)

    trainer = best("trainer_steps_per_s_")
    stock, emulator = best("stock_steps_per_s_"), best("emulator_steps_per_s")
    comparisons = [
        Comparison("trainer_over_stock", "trainer / stock RLlib", trainer / stock, STOCK_BAR),
        Comparison("trainer_over_emulator", "trainer / emulator", trainer / emulator, EMULATOR_BAR),
        Comparison("startup", "seconds to the first update", best("startup_s"), STARTUP_BAR),
        Comparison("memory", "GB of memory", best("trainer_peak_memory_gb"), MEMORY_BAR),
        Comparison("fragment", "bytes per environment step", best("fragment_bytes"), FRAGMENT_BAR),
        Comparison("callback", "% of time for MLflow", best("callback_percent"), CALLBACK_BAR),
    ]
    least, most = DRIVER_ENV_RUNNERS[0], DRIVER_ENV_RUNNERS[-1]
    for key, words in (("driver", "without"), ("driver_learning", "with")):
        cost = f"{key}_cpu_us_per_1000_steps"
        growth = best(f"{cost}_{most}") / best(f"{cost}_{least}")
        what = f"driver's cost {words} learning, {most} / {least} env runners"
        comparisons.append(Comparison(f"{key}_cost_growth", what, growth, DRIVER_BAR))
    return [comparison for comparison in comparisons if math.isfinite(comparison.value)]


def fresh_logs(folder: Path) -> Path:
    """Makes the folder of logs, without those of the last benchmark."""
    folder.mkdir(parents=True, exist_ok=True)
    for log in folder.glob("*.log"):
        log.unlink()
    return folder
