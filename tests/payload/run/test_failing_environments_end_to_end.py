"""Environments that raise, hang or return invalid values during training."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from typing import Any

import pytest

from payload.run import training_callback
from payload.tracking.metrics import STEPS
from tests.payload.command_line import in_process, run_folder, with_database

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ray_here")]

FAULTY = "tests.payload.faulty_environment.faulty:Faulty-v0"
"""Ray's processes import it as the tests do."""
RESTARTS = "fault_tolerance/num_remote_worker_restarts"
MOST_IN_A_ROW = 2
ENVIRONMENT: dict[str, Any] = {
    "num_env_runners": 1,
    "num_envs_per_env_runner": 1,
    "min_time_s_per_iteration": 0.5,
    "env_step_timeout_s": 2,
}


@dataclass(frozen=True)
class Run:
    """A run in an environment that fails once in each of two ways, and then always."""

    exit_code: int
    output: str
    rows: list[dict[str, str]]
    """Rows of progress.csv."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = with_database(tmp_path_factory.mktemp("faulty"))
    env_config = {"faults": ["NaN", "hangs", "raises"], "came": str(folder), "every": 300}
    config = {**ENVIRONMENT, "env_config": {**env_config, "last_is_always": True}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training_callback, "MOST_IN_A_ROW", MOST_IN_A_ROW)
        options = ("--config", json.dumps(config), "--stop", '{"time_total_s": 120}')
        done = in_process(folder, "train", "--env", FAULTY, *options)
    with (run_folder(folder) / "progress.csv").open() as file:
        return Run(done.returncode, done.stdout + done.stderr, list(csv.DictReader(file)))


@pytest.mark.parametrize(
    "reason",
    [
        "environment 0 has returned an observation that is not finite",
        "no answer for 2 s",
        "ValueError: the simulator has crashed",
    ],
)
def test_a_fault_is_named(run: Run, reason: str) -> None:
    lines = [line for line in run.output.splitlines() if reason in line]
    assert lines[0].startswith("Env runner 1 failed and is back:"), run.output


def test_a_run_continues_after_a_fault_and_counts_it(run: Run) -> None:
    assert float(run.rows[-1][RESTARTS]) >= 2
    assert int(run.rows[-1][STEPS]) > 600


def test_an_environment_that_always_fails_ends_the_run_with_its_reason(run: Run) -> None:
    assert run.exit_code == 1
    (line,) = [line for line in run.output.splitlines() if line.startswith("FAILED")]
    assert f"failed {MOST_IN_A_ROW} times" in line
    assert "ValueError: the simulator has crashed" in line
