"""The measurements of `bench`, in their order, and the figures that each one gives."""

from __future__ import annotations

import json
import re
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from bench.cpu_time import IN_WORDS
from bench.limits import Limit
from bench.process import Child
from bench.table import Figure
from bench.trainer import measure_memory, measure_startup, measure_throughput

STARTUPS = 3
IMPORTS = "import torch, ray"
DRIVER_ENV_RUNNERS = (1, 2, 4)
SINGLE = {
    "emulator": ("steps_per_s", "steps/s", "emulator: random actions, all cores"),
    "fragment": ("bytes_per_step", "B/step", "rollout fragment, as it travels"),
    "learner": ("samples_per_s", "samples/s", "learner: one, local, synthetic fragments"),
    "callback": ("percent", "%", "MLflow callback and delivery, of a core's time"),
}
"""Key, unit and description of the figure of each part that has only one, by the keys of PARTS."""
STOCK = {"stock": "stock RLlib", "stock_vector": "stock RLlib, vector environment"}
"""Description of each way to run stock RLlib, by the part that measures it."""
PART_TIMEOUT_S = 300.0
"""How long a part may take besides the time that it measures."""


@dataclass(frozen=True)
class Part:
    name: str
    measure: Callable[[Path], list[Figure]]
    """Takes the log to write to; raises MeasurementError."""
    round: int = 1

    @property
    def log_name(self) -> str:
        return re.sub(r"[^a-z0-9]+", "-", f"{self.name} {self.round}".lower()) + ".log"


def parts(seconds: float, cores: int, rounds: int) -> list[Part]:
    """Returns all measurements in order: first, round by round, those that are compared.

    The trainer has an env runner on every core, its default. Stock RLlib also runs with one fewer,
    which leaves a core to its learner.
    """
    limit = partial(Limit, seconds=seconds)
    compared = [("emulator", partial(_single, limit("emulator")))]
    for n in sorted({max(1, cores - 1), cores}):
        for part, what in STOCK.items():
            compared.append((f"{what}, {_env_runners(n)}", partial(_stock, limit(part, n))))
    compared.append((f"trainer, {_env_runners(cores)}", partial(_trainer, cores, seconds)))
    planned = [Part(*part, turn) for turn in range(1, rounds + 1) for part in compared]
    planned += [
        Part("start-up", _startup),
        Part("trainer memory", partial(_memory, seconds)),
        Part("rollout fragment", partial(_single, limit("fragment"))),
        Part("learner", partial(_single, limit("learner"))),
        Part("MLflow callback", partial(_single, limit("callback"))),
    ]
    for learning in (False, True):
        words = "driver with learning" if learning else "driver without learning"
        for n in DRIVER_ENV_RUNNERS:
            measure = partial(_driver, limit("driver", n, learning))
            planned.append(Part(f"{words}, {_env_runners(n)}", measure))
    return planned


def _startup(log: Path) -> list[Figure]:
    measured = [(measure_startup(log), measure_imports(log)) for _ in range(STARTUPS)]
    startup_s, imports_s = map(statistics.median, zip(*measured, strict=True))
    startup, imports = "trainer: command to first update", f'python -c "{IMPORTS}"'
    return [
        Figure("startup_s", startup_s, "s", f"{startup}, median of {STARTUPS}"),
        Figure("imports_s", imports_s, "s", f"{imports}, median of {STARTUPS}, alternating"),
    ]


def measure_imports(log: Path, statement: str = IMPORTS) -> float:
    """Returns the seconds that a fresh interpreter takes for the largest imports of a start.

    Start-ups on different machines compare as multiples of it.
    """
    with Child([sys.executable, "-c", statement], log) as child:
        if child.wait(PART_TIMEOUT_S) != 0:
            child.fail()
        return child.seconds


def _trainer(env_runners: int, seconds: float, log: Path) -> list[Figure]:
    measured = measure_throughput({"num_env_runners": env_runners}, seconds, log)
    name, what = f"trainer_steps_per_s_{env_runners}", f"trainer, {_env_runners(env_runners)}"
    return [
        Figure(name, measured.steps_per_s, "steps/s", what),
        *(
            Figure(f"trainer_cpu_us_{kind}", us, "us/step", f"trainer: CPU of {IN_WORDS[kind]}")
            for kind, us in measured.cpu_us.items()
        ),
    ]


def _memory(seconds: float, log: Path) -> list[Figure]:
    memory = measure_memory(seconds, log)
    what = "trainer: peak memory, all processes (PSS)"
    return [Figure("trainer_peak_memory_gb", memory / 1e9, "GB", what)]


def _stock(limit: Limit, log: Path) -> list[Figure]:
    rate = measure(limit, log)["steps_per_s"]
    name = f"{limit.part}_steps_per_s_{limit.env_runners}"
    what = f"{STOCK[limit.part]}, {_env_runners(limit.env_runners)}"
    return [Figure(name, rate, "steps/s", what)]


def _single(limit: Limit, log: Path) -> list[Figure]:
    key, unit, what = SINGLE[limit.part]
    return [Figure(f"{limit.part}_{key}", measure(limit, log)[key], unit, what)]


def _driver(limit: Limit, log: Path) -> list[Figure]:
    measured = measure(limit, log)
    n = limit.env_runners
    key = "driver_learning" if limit.learning else "driver"
    words = "with" if limit.learning else "without"
    who = f"driver {words} learning, {_env_runners(n)}"
    cost = measured["driver_us_per_1000_steps"]
    return [
        Figure(f"{key}_steps_per_s_{n}", measured["steps_per_s"], "steps/s", who),
        Figure(f"{key}_cpu_us_per_1000_steps_{n}", cost, "us/1000 steps", f"{who}: CPU"),
    ]


def measure(limit: Limit, log: Path) -> dict[str, float]:
    """Measures in a process of its own; returns the figures."""
    with tempfile.TemporaryDirectory(prefix="payload-bench-") as folder:
        outcome = Path(folder) / "outcome.json"
        command = [sys.executable, "-m", "bench.limits"]
        with Child([*command, str(outcome), json.dumps(asdict(limit))], log) as child:
            if child.wait(2 * limit.seconds + PART_TIMEOUT_S) != 0:
                child.fail()
        figures: dict[str, float] = json.loads(outcome.read_text())
        return figures


def _env_runners(count: int) -> str:
    return f"{count} env runner{'s' if count > 1 else ''}"
