"""A run of pulumi succeeds after SIGKILL ended the previous one in any of its operations.

The stack's state is the only memory. `make up` and `make down` are infra/up/deploy.py. Each run
here is killed at the next kind of resource, so that every kind is covered once;
tests/chaos/test_interrupted_pulumi.py kills a run in each of its operations.
"""

from __future__ import annotations

from collections import Counter

import pytest

from rehearsal.azure.resources.resource_kinds import SUBSCRIPTION
from rehearsal.scenario.stack_changes import KEPT
from tests.infra.up import engine_stack
from tests.infra.up.engine_stack import Stack, needs_pulumi
from tests.infra.up.failing_azure import parse_kill

stack, declared = engine_stack.stack, engine_stack.declared
pytestmark = [pytest.mark.slow, needs_pulumi]

EVERYTHING = Counter(
    ResourceGroup=2,
    VirtualNetwork=1,
    Subnet=2,
    NetworkSecurityGroup=2,
    NatGateway=1,
    PublicIPAddress=2,
    NetworkInterface=1,
    StorageAccount=1,
    BlobServiceProperties=1,
    ManagementPolicy=1,
    BlobContainer=3,
    UserAssignedIdentity=3,
    RoleAssignment=9,
    VirtualMachine=1,
    VirtualMachineScaleSet=1,
    AutoscaleSetting=1,
    VirtualMachineRunCommandByVirtualMachine=4,
)
RESULTS = Counter(KEPT)
LOGIN = {"ARM_SUBSCRIPTION_ID": SUBSCRIPTION}
KILLED_UPS = [
    # The very first operation.
    "ResourceGroup",
    # A minus means that Azure has not begun the operation.
    "VirtualNetwork -NetworkSecurityGroup PublicIPAddress -UserAssignedIdentity",
    "NatGateway",
    "Subnet",
    "NetworkInterface -StorageAccount",
    "BlobContainer -BlobServiceProperties ManagementPolicy",
    "RoleAssignment",
    "VirtualMachine VirtualMachineScaleSet",
    "AutoscaleSetting",
    "VirtualMachineRunCommandByVirtualMachine",
    # The very last operation.
    "VirtualMachineRunCommandByVirtualMachine",
]
KILLED_DESTROYS = ["-RoleAssignment", "RoleAssignment", "BlobContainer", "ResourceGroup"]


def test_each_kind_of_resource_is_killed() -> None:
    assert {kind for kill in KILLED_UPS for kind in parse_kill(kill).begun} == set(EVERYTHING)


@pytest.mark.timeout(1800)
def test_make_up_after_killed_ups_makes_everything_once_and_replaces_nothing(stack: Stack) -> None:
    output = ""
    for kill in KILLED_UPS:
        killed = stack.make_target("up", **LOGIN, AZURE_KILL=kill)
        assert killed.returncode != 0, kill
        output += killed.stdout
    done = stack.make_target("up", **LOGIN)
    assert done.returncode == 0, done.stdout + done.stderr
    assert Counter(stack.kinds()) == EVERYTHING
    assert "replaced" not in output + done.stdout


def test_attributes_of_the_state_that_were_being_written_are_made_again(declared: Stack) -> None:
    # gocloud.dev writes its attribute files in place.
    (attributes,) = (declared.folder.parent / "state").rglob("dev.json.attrs")
    attributes.write_text("")
    done = declared.make_target("up", **LOGIN)
    assert done.returncode == 0, done.stdout + done.stderr


def test_make_down_after_killed_destroys_leaves_the_results_alone(declared: Stack) -> None:
    # Azure itself deletes what is in the group.
    for kill in KILLED_DESTROYS:
        killed = declared.make_target("destroy", **LOGIN, AZURE_KILL=kill)
        assert killed.returncode != 0, kill
    done = declared.make_target("destroy", **LOGIN)
    assert done.returncode == 0, done.stdout + done.stderr
    assert Counter(declared.kinds()) == RESULTS
