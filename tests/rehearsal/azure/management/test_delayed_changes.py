"""Changes that Azure makes some time after the request."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from rehearsal.azure.management import delayed_changes as due_changes
from rehearsal.azure.management.delayed_changes import autoscale, is_due, make_due_changes
from rehearsal.azure.resources.azure_stand_in import Azure
from rehearsal.azure.resources.resource_kinds import Resource, Resources
from rehearsal.azure.resources.scale_set_machines import SetMachine, with_machines
from tests.rehearsal.azure.resources.scale_set_cloud import GROUP, SCALE_SET, cloud, make

SET = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/w"


def resources(ready: float, gone: float | None = None) -> Resources:
    machine = SetMachine("worker0", 0, 0.0, ready, gone)
    return {SET: with_machines(Resource("VirtualMachineScaleSet", {}, {}), [machine])}


@pytest.mark.parametrize(("since", "now", "due"), [(0, 9, False), (9, 10, True), (10, 11, False)])
def test_a_machine_that_is_ready_is_due_once(since: float, now: float, due: bool) -> None:
    assert is_due(resources(ready=10), since, now) == due


def test_a_machine_that_is_gone_is_due_once_more() -> None:
    assert is_due(resources(ready=10, gone=20), 19, 20)


@pytest.mark.parametrize(("capacity", "after"), [(0, 2), (2, 2), (5, 5), (9, 5)])
def test_azures_autoscale_keeps_the_capacity_within_its_limits(
    tmp_path: Path, capacity: int, after: int
) -> None:
    with cloud(tmp_path, capacity) as there:
        limits = {"minimum": "2", "maximum": "5", "default": "2"}
        rules = {
            "targetResourceUri": SCALE_SET,
            "enabled": True,
            "profiles": [{"capacity": limits}],
        }
        make(there.azure, "AutoscaleSetting", f"{GROUP}/rules", rules)
        autoscale(there.azure)
        assert there.capacity == after


class FailsOnce(Azure):
    """An Azure with one ready machine, whose first change fails."""

    applied = 0

    def resources(self) -> dict[str, Resource]:
        return dict(resources(ready=1))

    def apply(self, resources: Resources) -> None:
        self.applied += 1
        if self.applied == 1:
            raise OSError("the disk is full")


@pytest.mark.slow
def test_a_change_that_fails_is_made_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for pause in ("PAUSE_S", "AFTER_FAILURE_S"):
        monkeypatch.setattr(due_changes, pause, 0.01)
    azure, stopped = FailsOnce(tmp_path / "resources.json"), threading.Event()
    thread = threading.Thread(target=make_due_changes, args=(azure, stopped))
    thread.start()
    end = time.monotonic() + 10
    while azure.applied < 2 and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(0.1)
    stopped.set()
    thread.join()
    assert azure.applied == 2
