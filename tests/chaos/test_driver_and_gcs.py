"""The driver or Ray's head is killed during training; the run resumes."""

from __future__ import annotations

import itertools
import json
import signal
import statistics
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from ray.cluster_utils import Cluster

from payload.tracking.metrics import STEPS, TIME
from tests.chaos.nodes import kill_gcs, start_cluster
from tests.chaos.runs import CHECKPOINT_EVERY_S, config, database, points, rows, wait_until
from tests.payload.command_line import learning, mlflow_run, run_folder, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.chaos]

Record = Callable[[str, str, float], None]
FAILS_WITHIN_S = 20
SAVED_WITHIN_S = CHECKPOINT_EVERY_S + 3.0
"""The interval, plus time for the iteration to end and the checkpoint to be written."""


@dataclass(frozen=True)
class CutOff:
    """The state of a run when it was cut off."""

    at: float
    env_steps: int
    seconds_lost: float
    """Seconds of training since the last checkpoint."""


def cut_off(folder: Path, at: float) -> CutOff:
    last = rows(folder)[-1]
    newest = max((run_folder(folder) / "checkpoints").glob("checkpoint_*"))
    saved = json.loads((newest / "progress.json").read_text())
    return CutOff(at, int(last[STEPS]), last[TIME] - saved["time_total_s"])


def wait_for_checkpoints(folder: Path) -> None:
    """Waits until the third checkpoint is nearly due: the worst moment to lose the run."""
    checkpoints = run_folder(folder) / "checkpoints"
    wait_for(lambda: len(list(checkpoints.glob("checkpoint_*"))) >= 2)
    time.sleep(CHECKPOINT_EVERY_S - 1)


def resume_and_check(folder: Path, cut: CutOff, fault: str, record: Record, *options: str) -> None:
    """Resumes a run until it passes its previous step; checks that it lost no more than allowed."""
    run_id = mlflow_run(folder).info.run_id
    begun = time.monotonic()
    with learning(folder, "--resume", *config(env_runners=1), *options) as process:
        wait_until(folder, lambda row: row[STEPS] > cut.env_steps, begun, 120)
        seconds = time.monotonic() - begun
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        output = process.stdout.read()
        assert process.wait(timeout=120) == 130, output
    there = points(database(folder))
    gaps = [later - earlier for (earlier, _), (later, _) in itertools.pairwise(there)]
    record(fault, f"{cut.seconds_lost:.1f} s of training, no point of MLflow", seconds)
    assert cut.seconds_lost < SAVED_WITHIN_S
    assert mlflow_run(folder).info.run_id == run_id
    assert len(set(there)) == len(there), "a point twice"
    assert min(gaps) >= 0, "the axis goes back"
    assert max(gaps) < 5 * statistics.median(gaps), "a gap"


def test_a_killed_driver(folder: Path, record: Record) -> None:
    with learning(folder, *config(env_runners=1)) as process:
        wait_for_checkpoints(folder)
        process.kill()
        cut = cut_off(folder, time.monotonic())
        process.wait()
    resume_and_check(folder, cut, "SIGKILL of the driver; --resume", record)


def ended_in_order(process: subprocess.Popen[str], at: float) -> float:
    """Returns the seconds that a run took to end as FAILED after losing its GCS."""
    assert process.stdout is not None
    output = process.stdout.read()
    assert process.wait(timeout=120) == 1, output
    assert "FAILED: Ray's head is gone" in output
    return time.monotonic() - at


def test_a_killed_gcs(cluster: Cluster, folder: Path, record: Record) -> None:
    options = config(env_runners=1)
    with learning(folder, "--address", cluster.address, *options) as process:
        wait_for_checkpoints(folder)
        cut = cut_off(folder, kill_gcs(cluster))
        seconds = ended_in_order(process, cut.at)
    record("SIGKILL of the GCS", "the cluster; the run has ended as FAILED", seconds)
    assert seconds < FAILS_WITHIN_S
    with start_cluster(nodes=1) as another:
        resume_and_check(
            folder, cut, "the same, --resume on a new cluster", record, "--address", another.address
        )


def test_a_killed_driver_and_gcs(cluster: Cluster, folder: Path, record: Record) -> None:
    options = config(env_runners=1)
    with learning(folder, "--address", cluster.address, *options) as process:
        wait_for_checkpoints(folder)
        at = kill_gcs(cluster)
        process.kill()
        cut = cut_off(folder, at)
        process.wait()
    fault = "SIGKILL of driver and GCS; --resume on this machine"
    resume_and_check(folder, cut, fault, record)
