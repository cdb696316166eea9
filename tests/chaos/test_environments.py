"""An environment fails in every possible way during training."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from payload.environments.environment_faults import NATIVE_GRACE_S
from payload.tracking.metrics import RESTARTS
from tests.chaos.runs import LONG, THROUGHPUT, wait_until
from tests.payload.command_line import learning, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.chaos]

Record = Callable[[str, str, float], None]
FAULTY = Path(__file__).parents[1] / "payload" / "faulty_environment"
TIMEOUT_S = 2.0
RECOVERS_WITHIN_S = 20.0
FAULTS = {
    "raises": "an environment raises",
    "NaN": "an environment returns NaN",
    "outside": "an observation lies outside its space",
    "hangs": f"an environment hangs, env_step_timeout_s {TIMEOUT_S:g}",
    "hangs natively": f"the same in native code, {NATIVE_GRACE_S:g} s later",
}


def is_back(times: int) -> Callable[[dict[str, float]], bool]:
    """Returns a condition: the env runner samples again after `times` faults."""
    return lambda row: row[RESTARTS] >= times and row[THROUGHPUT] > 0


def test_each_fault_is_survived(folder: Path, record: Record) -> None:
    came = folder / "came"
    came.mkdir()
    config = {
        "num_env_runners": 1,
        "num_envs_per_env_runner": 1,
        "min_time_s_per_iteration": 0.5,
        "env_step_timeout_s": TIMEOUT_S,
        "env_config": {"faults": list(FAULTS), "came": str(came), "every": 2000},
    }
    of_faulty = ("--env", "faulty:Faulty-v0", "--source-directory", str(FAULTY))
    recovered = {}
    with learning(folder, *of_faulty, *LONG, "--config", json.dumps(config)):
        for count, fault in enumerate(FAULTS, 1):
            wait_for((came / fault).exists)
            at = time.monotonic()
            recovered[fault] = wait_until(folder, is_back(count), at, 90)
    for fault, seconds in recovered.items():
        record(FAULTS[fault], "a rollout fragment", seconds)
    native = recovered.pop("hangs natively")
    assert native < TIMEOUT_S + NATIVE_GRACE_S + RECOVERS_WITHIN_S
    assert max(recovered.values()) < RECOVERS_WITHIN_S
