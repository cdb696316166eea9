"""How the cluster goes to sleep, and how it is woken when that fails.

Each step can be repeated: a run that was killed is repeated from the first step by the next one.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cluster_settings import ClusterSettings

from .idle import unfinished
from .sleep_record import SleepRecord

if TYPE_CHECKING:
    from .azure import Cloud

PYTHON = "/opt/volley/venv/bin/python"
SAVE = Path("/usr/local/lib/volley/sync_results.py")
UNITS = ("ray-head.service", "experiments.service")
DEALLOCATED_S = 600.0
"""Azure has refused silently if the head is still up so long after it was asked."""


class StepError(Exception):
    """A step has failed."""


class NeededError(Exception):
    """Somebody has submitted an experiment meanwhile."""


def go(settings: ClusterSettings, record: SleepRecord) -> None:
    """Goes to sleep, or continues to; sleep.json says what has become of it."""
    if record.step == "waking":
        wake(record)
    elif record.asked is None:
        _try(settings, record)
    elif time.time() - record.asked > DEALLOCATED_S:
        wake(_failed(record, StepError(f"still up {DEALLOCATED_S / 60:.0f} min after deallocate")))


def wake(record: SleepRecord) -> None:
    """Starts what was stopped; the next run repeats it if it fails."""
    record = replace(record, going=True, step="waking", asked=None)
    record.write()
    _run(["systemctl", "start", "--no-block", *UNITS])
    replace(record, going=False, step="", why="").write()


def _try(settings: ClusterSettings, record: SleepRecord) -> None:
    try:
        # It takes half a second to import: most runs do not need it.
        from .azure import Cloud

        cloud = Cloud(settings.scale_set, settings.head_vm)
        if not record.going:
            cloud.check()
    except Exception as error:
        failed = _failed(record, error)
        # Before the first step nothing has been stopped.
        wake(failed) if record.going else failed.write()
        return
    try:
        _sleep(cloud, record)
    except NeededError as error:
        print(f"stays awake: {error}", flush=True)
        wake(replace(record, idle_since=None, problem="", next_try=None, failures=0))
    except Exception as error:
        wake(_failed(record, error))


def _sleep(cloud: Cloud, record: SleepRecord) -> None:
    record = _at(record, "experiments")
    _run(["systemctl", "stop", "experiments.service"])
    _look_again(record)
    record = _at(record, "results")
    # Not the unit: a save of it that runs already would miss the last changes.
    _run(["runuser", "--user", "ray", "--", PYTHON, str(SAVE), "save"])
    record = _at(record, "ray")
    # Its autoscaler would bring the workers back.
    _run(["systemctl", "stop", "ray-head.service"])
    record = _at(record, "workers")
    cloud.delete_workers()
    _look_again(record)
    record = _at(record, "deallocate")
    cloud.deallocate_head()
    replace(record, asked=time.time()).write()
    print("Azure deallocates the head", flush=True)


def _at(record: SleepRecord, step: str) -> SleepRecord:
    record = replace(record, going=True, step=step)
    record.write()
    return record


def _look_again(record: SleepRecord) -> None:
    if not record.whatever_runs and (names := unfinished()):
        raise NeededError(names)


def _failed(record: SleepRecord, error: Exception) -> SleepRecord:
    print(f"does not sleep: {error}", flush=True)
    return record.after_failure(str(error), time.time(), getattr(error, "retry_after_s", 0.0))


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        last = done.stderr.strip().rpartition("\n")[2]
        raise StepError(f"{' '.join(command)}: {last or f'exit code {done.returncode}'}")
