"""The stand-in for management.azure.com: its authorization and the meaning of its answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from rehearsal.azure.resources import roles
from rehearsal.azure.resources.run_commands import RUN_COMMAND
from tests.rehearsal.azure.resources.scale_set_cloud import (
    GROUP,
    HEAD,
    IN_GROUP,
    ROLES,
    SCALE_SET,
    Cloud,
    cloud,
)

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("clock")]

VMS = f"{GROUP}/providers/Microsoft.Compute/virtualMachines"
OF_SET = {"$filter": f"'virtualMachineScaleSet/id' eq '{SCALE_SET}'"}
Ask = Callable[..., requests.Response]


class Clock:
    def __init__(self) -> None:
        self.now = time.time() + 5  # Role assignments carry the time of another clock.

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    frozen = Clock()
    monkeypatch.setattr(time, "time", frozen)
    return frozen


@pytest.fixture
def azure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cloud]:
    """Azure with two machines, and with roles in effect."""
    monkeypatch.setattr(roles, "ROLE_DELAY_S", 0)
    with cloud(tmp_path, capacity=2) as running:
        yield running


def ask(
    azure: Cloud, method: str, path: str, body: Any = None, token: str = "", **headers: str
) -> requests.Response:
    url = path if path.startswith("http") else f"{azure.url}{path}"
    query = {"api-version": "2024-07-01"} if "api-version" not in url else {}
    if path == VMS:
        query |= OF_SET
    sent = {"Authorization": f"Bearer {token or azure.token()}", **headers}
    return requests.request(method, url, params=query, json=body, headers=sent, timeout=10)


def resize(azure: Cloud, capacity: int, **headers: str) -> requests.Response:
    return ask(azure, "PATCH", SCALE_SET, {"sku": {"capacity": capacity}}, **headers)


def listed(azure: Cloud) -> dict[str, str]:
    """Returns provisioningState by name, from all pages."""
    page = ask(azure, "GET", VMS).json()
    machines = page["value"]
    while "nextLink" in page:
        page = ask(azure, "GET", page["nextLink"]).json()
        machines += page["value"]
    return {machine["name"]: machine["properties"]["provisioningState"] for machine in machines}


def code(response: requests.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["code"]


def ended(azure: Cloud, response: requests.Response) -> Any:
    return ask(azure, "GET", response.headers["Azure-AsyncOperation"]).json()


def test_a_growth_takes_a_while(azure: Cloud, clock: Clock) -> None:
    begun = resize(azure, 3)
    assert begun.status_code == 202
    assert ended(azure, begun)["status"] == "InProgress"
    assert listed(azure)["worker2"] == "Creating"
    clock.now += 10
    assert ended(azure, begun)["status"] == "Succeeded"
    assert listed(azure) == dict.fromkeys(("worker0", "worker1", "worker2"), "Succeeded")
    assert ask(azure, "GET", SCALE_SET).json()["sku"]["capacity"] == 3


@pytest.mark.parametrize(("goal", "capacity"), [(False, 2), (True, 1)])
def test_a_deletion_takes_a_while_and_may_lower_the_capacity(
    azure: Cloud, clock: Clock, goal: bool, capacity: int
) -> None:
    with azure.faults.changed() as faults:
        faults.capacity_is_goal = goal
    begun = ask(azure, "POST", f"{SCALE_SET}/delete", {"instanceIds": ["worker0"]})
    assert listed(azure) == {"worker0": "Deleting", "worker1": "Succeeded"}
    clock.now += 10
    assert ended(azure, begun)["status"] == "Succeeded"
    assert (listed(azure), azure.capacity) == ({"worker1": "Succeeded"}, capacity)


def test_no_machine_gets_the_name_of_one_that_is_gone(azure: Cloud, clock: Clock) -> None:
    ask(azure, "POST", f"{SCALE_SET}/delete", {"instanceIds": ["worker1"]})
    clock.now += 10
    resize(azure, 3)
    assert list(listed(azure)) == ["worker0", "worker2"]


def test_a_smaller_capacity_deletes_the_oldest_at_work_or_not(azure: Cloud, clock: Clock) -> None:
    resize(azure, 1)
    clock.now += 10
    assert list(listed(azure)) == ["worker1"]


def test_a_machine_outside_the_scale_set_deletes_nothing(azure: Cloud) -> None:
    names = {"instanceIds": ["worker0", "head"]}
    assert code(ask(azure, "POST", f"{SCALE_SET}/delete", names)) == (400, "InvalidParameter")
    assert azure.capacity == len(listed(azure)) == 2


def test_a_change_of_what_was_read_before_another_is_refused(azure: Cloud) -> None:
    tag = ask(azure, "GET", SCALE_SET).json()["etag"]
    assert resize(azure, 3, **{"If-Match": tag}).status_code == 202
    assert code(resize(azure, 4, **{"If-Match": tag})) == (412, "PreconditionFailed")


def test_what_pulumi_declares_and_the_endpoint_changes_is_one_state(azure: Cloud) -> None:
    resize(azure, 4)
    inputs = azure.azure.resources()[SCALE_SET].inputs
    assert inputs["sku"]["capacity"] == 4
    azure.azure.update(SCALE_SET, {**inputs, "sku": {**inputs["sku"], "capacity": 1}})
    assert list(listed(azure)) == ["worker3"]


@pytest.mark.parametrize(
    ("audience", "principal", "expected"),
    [
        ("https://storage.azure.com", "head's principal", (401, "InvalidAuthenticationToken")),
        ("https://management.azure.com", "somebody", (403, "AuthorizationFailed")),
    ],
)
def test_another_audience_and_another_identity_are_refused(
    azure: Cloud, audience: str, principal: str, expected: tuple[int, str]
) -> None:
    token = azure.token(principal, audience)
    assert code(ask(azure, "GET", SCALE_SET, token=token)) == expected


@pytest.mark.parametrize(
    ("has", "action"),
    [
        (("identity",), "Microsoft.Compute/virtualMachineScaleSets/write"),
        (("vm",), "Microsoft.ManagedIdentity/userAssignedIdentities/assign/action"),
    ],
)
def test_a_growth_needs_every_role(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    has: tuple[str, ...],
    action: str,
) -> None:
    monkeypatch.setattr(roles, "ROLE_DELAY_S", 0)
    with cloud(tmp_path, capacity=0, roles=has) as azure:
        refused = resize(azure, 1)
    assert code(refused) == (403, "AuthorizationFailed")
    assert action in refused.json()["error"]["message"]


def test_a_role_has_no_effect_before_its_time(tmp_path: Path, clock: Clock) -> None:
    with cloud(tmp_path) as azure:
        assert code(ask(azure, "GET", SCALE_SET)) == (403, "AuthorizationFailed")
        clock.now += roles.ROLE_DELAY_S + 1
        assert ask(azure, "GET", SCALE_SET).status_code == 200


def test_a_role_on_the_scale_set_alone_does_not_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roles, "ROLE_DELAY_S", 0)
    monkeypatch.setitem(ROLES, "vm", (roles.VM_CONTRIBUTOR, SCALE_SET))
    with cloud(tmp_path) as azure:
        assert code(resize(azure, 1)) == (403, "AuthorizationFailed")


def test_throttling_says_when_to_ask_again(azure: Cloud) -> None:
    with azure.faults.changed() as faults:
        faults.throttled, faults.retry_after_s = 1, 7
    refused = resize(azure, 3)
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "7")
    assert resize(azure, 3).status_code == 202


def test_a_lost_answer_is_of_a_change_that_was_made(azure: Cloud) -> None:
    with azure.faults.changed() as faults:
        faults.lost_answers = 1
    with pytest.raises(requests.ConnectionError):
        resize(azure, 3)
    assert len(listed(azure)) == 3


def test_an_operation_that_was_sold_out_says_so_and_what_there_is_comes(
    azure: Cloud, clock: Clock
) -> None:
    with azure.faults.changed() as faults:
        faults.machines, faults.leaves_failed = 3, True
    begun = resize(azure, 5)
    clock.now += 10
    failed = ended(azure, begun)
    assert (failed["status"], failed["error"]["code"]) == ("Failed", "AllocationFailed")
    assert list(listed(azure).values()) == ["Succeeded"] * 3 + ["Failed"]


def test_a_size_that_is_not_available_changes_nothing(azure: Cloud) -> None:
    with azure.faults.changed() as faults:
        faults.machines, faults.sold_out_code = 3, "SkuNotAvailable"
    assert code(resize(azure, 5)) == (409, "SkuNotAvailable")
    assert azure.capacity == len(listed(azure)) == 2


@pytest.mark.parametrize(("keeps", "capacity"), [(True, 2), (False, 1)])
def test_an_eviction_takes_a_machine_and_perhaps_capacity(
    azure: Cloud, clock: Clock, keeps: bool, capacity: int
) -> None:
    with azure.faults.changed() as faults:
        faults.keeps_capacity = keeps
    assert ask(azure, "POST", f"{VMS}/worker0/simulateEviction").status_code == 204
    clock.now += 10
    assert (list(listed(azure)), azure.capacity) == (["worker1"], capacity)


@pytest.mark.parametrize("vm", [HEAD, f"{VMS}/worker0"])
def test_a_run_command_on_a_stopped_machine_is_refused(azure: Cloud, vm: str) -> None:
    assert ask(azure, "POST", f"{vm}/deallocate").status_code == 202
    assert code(ask(azure, "POST", f"{vm}/runCommand", {})) == (409, "OperationNotAllowed")
    assert ask(azure, "POST", f"{vm}/start").status_code == 202
    assert code(ask(azure, "POST", f"{vm}/runCommand", {})) == (501, "NotImplemented")


def test_a_head_that_is_stopped_by_this_endpoint_is_stopped_for_pulumi_too(azure: Cloud) -> None:
    ask(azure, "POST", f"{HEAD}/deallocate")
    command = {**IN_GROUP, "vmName": "head", "runCommandName": "training"}
    with pytest.raises(Exception, match="when the VM is not running"):
        azure.azure.create(f"azure-native:compute:{RUN_COMMAND}", f"{HEAD}/runCommands/t", command)
