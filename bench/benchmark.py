"""The speed benchmark: this trainer compared with stock RLlib and the emulator's limit.

Each measurement has fresh processes and its own Ray. A machine's speed drifts within minutes, so
the measurements that are compared alternate (A B C A B C ...), and the result is the median of the
rounds' ratios. Compare only figures from the same run of the benchmark.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from bench.intervals import median_interval
from bench.parts import DRIVER_ENV_RUNNERS, Part, parts
from bench.process import MeasurementError
from bench.table import (
    Bar,
    Comparison,
    Figure,
    Measured,
    machine,
    over_rounds,
    write_comparison,
)
from payload.errors import UserError
from payload.run.ray_cluster import available_cpus

STOCK_BAR = Bar(9.5, "at least")
"""Required ratio of the trainer's environment steps per second to stock RLlib's."""
STOCK_VECTOR_BAR = Bar(1.0, "at least")
"""The same with the emulator's vector environment, which RLlib's example does not use."""
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
TRAINER = "trainer_steps_per_s"


def bench(seconds: float, rounds: int, results: Path) -> int:
    """Measures this trainer, its baselines and its parts; prints and writes bench.json.

    A measurement lasts `seconds`, plus start-up; trainer and baselines are measured `rounds` times.
    The exit code is 1 if a measurement failed; the others still run. Logs are in bench-logs/.
    """
    check_system()
    console = Console(soft_wrap=True, highlight=False)
    about = machine()
    logs = results / "bench-logs"
    figures, problems = measure_parts(parts(seconds, available_cpus(), rounds), logs, console)
    measured = over_rounds(figures)
    compared = compare(measured)
    path = results / "bench.json"
    write_comparison(path, measured, compared, problems, console, **about, seconds=seconds)
    console.print(f"Logs in {logs}")
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
        name = part.name + (f", round {part.round}" if part.round > 1 else "")
        console.print(f"Measuring {name} ...")
        try:
            measured = part.measure(logs / part.log_name)
            figures += [replace(figure, round=part.round) for figure in measured]
        except (MeasurementError, OSError) as error:
            problems[name] = str(error)
            console.print(f"{name} failed: {error}", style="red", markup=False)
    return figures, problems


def compare(measured: Mapping[str, Measured]) -> list[Comparison]:
    """Compares figures, by name, with bars and with each other; omits those of a failed part.

    A ratio is the median of its rounds. Stock RLlib is measured with several numbers of env
    runners, of which the fastest counts.
    """

    def rounds(prefix: str) -> dict[int, float]:
        figures = [figure for name, figure in measured.items() if name.startswith(prefix)]
        return max(figures, key=lambda figure: figure.median.value).rounds if figures else {}

    def ratio(over: str, under: str) -> list[float]:
        numerators, denominators = rounds(over), rounds(under)
        shared = numerators.keys() & denominators.keys()
        return [numerators[turn] / denominators[turn] for turn in shared]

    values: list[tuple[str, str, list[float], Bar]] = [
        (f"trainer_over_{name}", f"trainer / {what}", ratio(TRAINER, f"{name}_steps_per_s"), bar)
        for name, what, bar in (
            ("stock", "stock RLlib", STOCK_BAR),
            ("stock_vector", "stock RLlib, vector environment", STOCK_VECTOR_BAR),
            ("emulator", "emulator", EMULATOR_BAR),
        )
    ]
    for name, what, prefix, bar in (
        ("startup", "seconds to the first update", "startup_s", STARTUP_BAR),
        ("memory", "GB of memory", "trainer_peak_memory_gb", MEMORY_BAR),
        ("fragment", "bytes per environment step", "fragment_bytes", FRAGMENT_BAR),
        ("callback", "% of time for MLflow", "callback_percent", CALLBACK_BAR),
    ):
        values.append((name, what, list(rounds(prefix).values()), bar))
    least, most = DRIVER_ENV_RUNNERS[0], DRIVER_ENV_RUNNERS[-1]
    for key, words in (("driver", "without"), ("driver_learning", "with")):
        cost = f"{key}_cpu_us_per_1000_steps"
        what = f"driver's cost {words} learning, {most} / {least} env runners"
        growth = ratio(f"{cost}_{most}", f"{cost}_{least}")
        values.append((f"{key}_cost_growth", what, growth, DRIVER_BAR))
    return [
        Comparison(name, what, median_interval(samples), bar)
        for name, what, samples, bar in values
        if samples
    ]


def fresh_logs(folder: Path) -> Path:
    """Makes the folder of logs, without those of the last benchmark."""
    folder.mkdir(parents=True, exist_ok=True)
    for log in folder.glob("*.log"):
        log.unlink()
    return folder
