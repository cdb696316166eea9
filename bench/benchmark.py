"""The benchmark of speed: this trainer beside stock RLlib and the emulator's limit.

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
    comparison_table,
    figure_table,
    machine,
    write_json,
)
from payload.errors import UserError
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
