"""What a company's policies deny, in Azure's words."""

from __future__ import annotations

from typing import Any

import pytest

from infra.up.deploy import POLICY
from rehearsal.azure.resources.resource_kinds import KINDS, Resource
from rehearsal.azure.resources.subscription import Subscription

SIZES = ("Standard_D2as_v5",)
COMPANY = Subscription(
    required_tags=("costCenter",),
    allowed_sizes=SIZES,
    allowed_locations=("eastus",),
    denied_kinds=("PublicIPAddress",),
    private_accounts=True,
)
GOOD = {"location": "eastus", "tags": {"costCenter": "rl"}}


def denied_by(kind: str, **inputs: Any) -> list[str]:
    resource_id = KINDS["ResourceGroup"].resource_id({"resourceGroupName": "one"})
    error = COMPANY.refusal(f"{resource_id}/x", Resource(kind, {**GOOD, **inputs}, {}))
    return POLICY.findall(str(error)) if error else []


@pytest.mark.parametrize(
    ("kind", "inputs", "policies"),
    [
        ("VirtualNetwork", {}, []),
        ("VirtualNetwork", {"tags": {}}, ["Require a tag on resources"]),
        ("VirtualNetwork", {"location": "westeurope"}, ["Allowed locations"]),
        ("BlobContainer", {"location": None, "tags": None}, []),
        ("PublicIPAddress", {}, ["Not allowed resource types"]),
        ("VirtualMachine", {"hardwareProfile": {"vmSize": SIZES[0]}}, []),
        (
            "VirtualMachine",
            {"hardwareProfile": {"vmSize": "Standard_B1s"}},
            ["Allowed virtual machine size SKUs"],
        ),
        (
            "VirtualMachineScaleSet",
            {"sku": {"name": "Standard_B1s"}},
            ["Allowed virtual machine size SKUs"],
        ),
        ("StorageAccount", {"publicNetworkAccess": "Disabled"}, []),
        (
            "StorageAccount",
            {"tags": {}},
            ["Require a tag on resources", "Storage accounts should disable public network access"],
        ),
    ],
)
def test_a_policy_is_named(kind: str, inputs: dict[str, Any], policies: list[str]) -> None:
    assert denied_by(kind, **inputs) == policies
