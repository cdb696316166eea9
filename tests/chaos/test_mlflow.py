"""The MLflow server is unreachable, slow or broken during training."""

from __future__ import annotations

import itertools
import signal
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from payload.tracking.metrics import ITERATION, STEPS, TIME
from tests.chaos.faulty_proxy import SLOW_S, FaultyProxy, Mode, faulty_mlflow
from tests.chaos.runs import config, points, rows, settle
from tests.payload.command_line import learning, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.chaos]

Record = Callable[[str, str, float], None]
LASTS_S = 60.0
MAY_WAIT_S = 0.01
"""The most seconds that an iteration may wait for MLflow."""


@pytest.fixture
def proxy(folder: Path) -> Iterator[FaultyProxy]:
    with faulty_mlflow(folder) as proxy:
        yield proxy


def iteration_s(folder: Path, since: int) -> float:
    """Returns the median duration of the iterations after a row."""
    times = [row[TIME] for row in rows(folder)[since:]]
    return statistics.median(b - a for a, b in itertools.pairwise(times))


@pytest.mark.parametrize(
    ("fault", "mode"),
    [
        (f"MLflow away for {LASTS_S:.0f} s", "away"),
        (f"MLflow answers after {SLOW_S:.0f} s, for {LASTS_S:.0f} s", "slow"),
        (f"MLflow answers 500 for {LASTS_S:.0f} s", "broken"),
    ],
)
def test_training_does_not_wait_and_every_point_arrives(
    proxy: FaultyProxy, folder: Path, record: Record, fault: str, mode: Mode
) -> None:
    with learning(folder, "--tracking-uri", proxy.address, *config(env_runners=1)) as process:
        settle(folder, env_runners=1, seconds=20.0)
        before = iteration_s(folder, since=5)
        first = len(rows(folder))
        proxy.mode = mode
        time.sleep(LASTS_S)
        waited = max(0.0, iteration_s(folder, first) - before)
        until = rows(folder)[-1][STEPS]
        proxy.mode, back = "ok", time.monotonic()
        wait_for(lambda: points(proxy.address)[-1][0] >= until)
        seconds = time.monotonic() - back
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        output = process.stdout.read()
        assert process.wait(timeout=120) == 130, output
    recorded = {(int(row[STEPS]), int(row[ITERATION])) for row in rows(folder)}
    missing = recorded - set(points(proxy.address))
    lost = f"{len(missing)} points; an iteration waits {1000 * waited:.0f} ms"
    record(fault, lost, seconds)
    assert not missing
    assert waited < MAY_WAIT_S
