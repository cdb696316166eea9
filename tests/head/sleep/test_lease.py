"""Workers do not outlive their head: Azure deletes them when it no longer renews their lease."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from head.sleep.lease import LEASE_HOURS
from rehearsal.azure.management.delayed_changes import due
from rehearsal.azure.resources.resource_kinds import KINDS
from rehearsal.azure.resources.roles import AUTOSCALE_WRITER
from tests.head.sleep.conftest import MakeHead
from tests.head.sleep.sleeping_head import HOUR, SleepingHead
from tests.rehearsal.azure.resources.scale_set_cloud import (
    GROUP,
    HEADS,
    SCALE_SET,
    make,
)

pytestmark = pytest.mark.slow
LEASE = f"{GROUP}/providers/Microsoft.Insights/autoscaleSettings/volley-dev-autoscale"
NOBODY = {
    "name": "without a head",
    "capacity": {"minimum": "0", "maximum": "0", "default": "0"},
    "rules": [],
}


class Leased:
    """A head whose workers have a lease; `after` tells what Azure's autoscale does later."""

    def __init__(self, head: SleepingHead) -> None:
        self.head = head
        setting = {"enabled": False, "profiles": [NOBODY], "targetResourceUri": SCALE_SET}
        make(head.cloud.azure, "AutoscaleSetting", LEASE, setting)
        head.set(lease=LEASE)
        head.experiment("pong", "TRAINING")

    def allow(self) -> None:
        role = {
            "roleAssignmentName": "lease",
            "principalId": HEADS,
            "principalType": "ServicePrincipal",
            "roleDefinitionId": f"/roleDefinitions/{AUTOSCALE_WRITER}",
            "scope": LEASE,
        }
        azure = self.head.cloud.azure
        make(azure, "RoleAssignment", KINDS["RoleAssignment"].resource_id(role), role)

    def after(self, hours: float) -> list[tuple[str, int]]:
        moment = datetime.now(UTC) + timedelta(hours=hours)
        return list(due(self.head.cloud.azure.resources(), moment))

    @property
    def setting(self) -> dict[str, Any]:
        return self.head.cloud.azure.resources()[LEASE].inputs

    @property
    def renewals(self) -> int:
        return self.head.cloud.count(f"PATCH {LEASE}")


@pytest.fixture
def leased(make_head: MakeHead) -> Leased:
    found = Leased(make_head(workers=3))
    found.allow()
    return found


def test_azure_deletes_the_workers_of_a_head_that_is_gone(leased: Leased) -> None:
    leased.head.run()
    assert leased.after(LEASE_HOURS - 0.1) == []
    assert leased.after(LEASE_HOURS + 0.1) == [(SCALE_SET, 0)]
    assert leased.after(1000) == [(SCALE_SET, 0)]


@pytest.mark.parametrize("machines", [0, 1, 4, 900])
def test_while_the_head_lives_azure_leaves_the_number_to_rays_autoscaler(
    leased: Leased, machines: int
) -> None:
    leased.head.run()
    with leased.head.cloud.azure.changing() as state:
        found = state.resources[SCALE_SET]
        sku = {**found.inputs["sku"], "capacity": machines}
        state.resources[SCALE_SET] = replace(found, inputs={**found.inputs, "sku": sku})
    assert leased.after(0) == []


def test_a_lease_is_renewed_each_half_hour_and_after_a_boot(leased: Leased) -> None:
    for _ in range(2):
        leased.head.run()
    assert leased.renewals == 1
    file = leased.head.root / "run/volley/lease"
    file.write_text(str(float(file.read_text()) - 0.51 * HOUR))
    leased.head.run()
    assert leased.renewals == 2
    file.unlink()
    leased.head.run()
    assert leased.renewals == 3


def test_a_head_with_a_wrong_clock_renews_by_azures(leased: Leased) -> None:
    leased.head.set_clock(-5 * HOUR)
    leased.head.run()
    assert leased.after(LEASE_HOURS - 0.1) == []
    assert leased.after(LEASE_HOURS + 0.1) == [(SCALE_SET, 0)]


def test_a_head_without_the_role_yet_has_workers_and_renews_later(make_head: MakeHead) -> None:
    leased = Leased(make_head(workers=3))
    assert "the workers' lease is not renewed: AuthorizationFailed" in leased.head.run()
    assert leased.after(1000) == []
    leased.allow()
    leased.head.run()
    assert leased.setting["enabled"]


Change = Callable[[Leased], object]


@pytest.mark.parametrize(
    "change",
    [
        lambda leased: leased.head.set(scaling="cpu", lease=LEASE),
        lambda leased: leased.head.set(lease=""),
    ],
)
def test_where_azures_rules_scale_no_lease_is_renewed(leased: Leased, change: Change) -> None:
    change(leased)
    leased.head.run()
    assert leased.renewals == 0


def test_a_check_that_fails_renews_nothing(leased: Leased) -> None:
    leased.head.replace_module("sleep/spending.py", "raise RuntimeError")
    leased.head.run(expected=1)
    assert leased.renewals == 0


def test_dates_are_as_azure_documents_them(leased: Leased) -> None:
    leased.head.run()
    _, alive = leased.setting["profiles"]
    dates = alive["fixedDate"]
    assert dates["timeZone"] == "UTC"
    for key in ("start", "end"):
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", dates[key])
