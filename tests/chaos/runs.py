"""Observes a run through its progress.csv while it trains."""

from __future__ import annotations

import csv
import time
from collections.abc import Callable
from pathlib import Path

from mlflow import MlflowClient

from payload.tracking.metrics import ITERATION, RESTARTS, STEPS
from tests.payload.command_line import run_folder, tracked_run

ALIVE = "fault_tolerance/num_healthy_workers"
THROUGHPUT = f"{STEPS}_throughput"
CONFIG = (
    '{{"num_env_runners": {env_runners}, "num_envs_per_env_runner": 4, '
    '"rollout_fragment_length": 8, "min_time_s_per_iteration": 0.5}}'
)
CHECKPOINT_EVERY_S = 5
LONG = ("--stop", '{"time_total_s": 600}', "--checkpoint-every", str(CHECKPOINT_EVERY_S))


def config(env_runners: int) -> tuple[str, ...]:
    """Returns the options of a small Pong run with `env_runners` env runners."""
    return ("--config", CONFIG.format(env_runners=env_runners), *LONG)


def rows(folder: Path) -> list[dict[str, float]]:
    """Returns the complete rows of progress.csv."""
    with (run_folder(folder) / "progress.csv").open() as file:
        whole = [row for row in csv.DictReader(file) if None not in row.values()]
    return [{name: float(value) for name, value in row.items()} for row in whole]


def wait_until(
    folder: Path, condition: Callable[[dict[str, float]], bool], since: float, limit_s: float
) -> float:
    """Waits for a new row that meets a condition; returns the seconds elapsed since `since`."""
    seen = len(rows(folder))
    while not any(condition(row) for row in rows(folder)[seen:]):
        assert time.monotonic() - since < limit_s, rows(folder)[-1]
        time.sleep(0.1)
    return time.monotonic() - since


def settle(folder: Path, env_runners: int, seconds: float = 5.0) -> float:
    """Waits until all env runners sample; returns the throughput over the next `seconds`."""
    wait_until(
        folder, lambda row: row[ALIVE] == env_runners and row[THROUGHPUT] > 0, time.monotonic(), 120
    )
    first = rows(folder)[-1]
    time.sleep(seconds)
    last = rows(folder)[-1]
    return (last[STEPS] - first[STEPS]) / (last["time_total_s"] - first["time_total_s"])


def restarts(folder: Path) -> int:
    return int(rows(folder)[-1][RESTARTS])


def points(tracking_uri: str) -> list[tuple[int, int]]:
    """Returns environment steps and iteration of each point of the only run in MLflow."""
    client, run_id = MlflowClient(tracking_uri), tracked_run(tracking_uri).info.run_id
    iterations = client.get_metric_history(run_id, ITERATION)
    return [(point.step, int(point.value)) for point in iterations]


def database(folder: Path) -> str:
    return f"sqlite:///{folder}/results/mlflow.db"
