"""Environments that raise, hang or return what they must not, while it trains."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.payload.command_line import payload, run_folder

pytestmark = pytest.mark.slow

FAULTY = Path(__file__).parent.parent / "faulty_environment"
RESTARTS = "fault_tolerance/num_remote_worker_restarts"
ENVIRONMENT: dict[str, Any] = {
    "num_env_runners": 1,
    "num_envs_per_env_runner": 1,
    "min_time_s_per_iteration": 0.5,
    "env_step_timeout_s": 5,
}


@dataclass(frozen=True)
class Run:
    """A run in an environment that fails."""

    exit_code: int
    output: str
    rows: list[dict[str, str]]
    """Of progress.csv."""


@pytest.fixture(scope="module")
def train(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Run]:
    def train(faults: list[str], stop: dict[str, float], **kwargs: Any) -> Run:
        folder = tmp_path_factory.mktemp("faulty")
        env_config = {"faults": faults, "came": str(folder), **kwargs}
        config = {**ENVIRONMENT, "env_config": env_config}
        done = payload(
            folder,
            *("train", "--env", "faulty:Faulty-v0", "--source-directory", str(FAULTY)),
            *("--config", json.dumps(config), "--stop", json.dumps(stop)),
        )
        with (run_folder(folder) / "progress.csv").open() as file:
            return Run(done.returncode, done.stdout + done.stderr, list(csv.DictReader(file)))

    return train


@pytest.fixture(scope="module")
def survivor(train: Callable[..., Run]) -> Run:
    faults = ["raises", "NaN", "outside", "hangs"]
    return train(faults, {"num_env_steps_sampled_lifetime": 5000}, every=500)


def test_a_run_continues_after_every_fault(survivor: Run) -> None:
    assert survivor.exit_code == 0, survivor.output


@pytest.mark.parametrize(
    "reason",
    [
        "ValueError: the simulator has crashed",
        "environment 0 has returned an observation that is not finite",
        "environment 0 has returned an observation outside observation_space: 7 at [1]",
        "no answer for 5 s",
    ],
)
def test_a_fault_is_named(survivor: Run, reason: str) -> None:
    lines = [line for line in survivor.output.splitlines() if reason in line]
    assert [line[:32] for line in lines] == ["Env runner 1 failed and is back:"], survivor.output


def test_faults_are_counted(survivor: Run) -> None:
    assert float(survivor.rows[-1][RESTARTS]) == 4


def test_an_environment_that_always_fails_ends_the_run_with_its_reason(
    train: Callable[..., Run],
) -> None:
    run = train(["raises"], {"time_total_s": 120}, always=True)
    assert run.exit_code == 1
    (line,) = [line for line in run.output.splitlines() if line.startswith("FAILED")]
    assert "failed 5 times" in line
    assert "ValueError: the simulator has crashed" in line
