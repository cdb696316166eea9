"""The steps to sleep, and waking again when one of them fails.

Each step can be repeated: if a run is killed, the next run repeats all steps.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from dataclasses import replace

from ..cluster_settings import ClusterSettings
from ..disk import NO_SPACE, free, free_bytes
from ..sleep_record import SleepRecord
from .deallocation import Cloud
from .idle import unfinished

SAVE = ("/usr/bin/python3", "-m", "head.identity", "save")
"""Not by the unit: a save that is already running would miss the last changes."""
UNITS = ("ray-head.service", "experiments.service")
DEALLOCATED_S = 600.0
"""If the head is still up this long after the request, Azure has refused it silently."""


class StepError(Exception):
    """A step has failed."""


class NeededError(Exception):
    """An experiment has been submitted meanwhile."""


def go(settings: ClusterSettings, record: SleepRecord) -> None:
    """Goes to sleep, or continues to; sleep.json records the outcome."""
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
        cloud = Cloud(settings)
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
    _save()
    record = _at(record, "ray")
    # Ray's autoscaler would bring the workers back.
    _run(["systemctl", "stop", "ray-head.service"])
    record = _at(record, "workers")
    cloud.delete_workers()
    _look_again(record)
    record = _at(record, "deallocate")
    cloud.deallocate_head()
    replace(record, asked=time.time()).write()
    print("Azure deallocates the head", flush=True)


def _save() -> None:
    try:
        _run(SAVE)
    except StepError as error:
        if free_bytes() > NO_SPACE:
            raise
        # A deallocated head keeps its disk; the next start saves what is on it.
        print(f"sleeps without a save, {free()}: {error}", flush=True)


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
