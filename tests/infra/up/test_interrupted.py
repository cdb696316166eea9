"""A run of pulumi that is killed, with SIGKILL, in any of its operations: the next one ends well.

The stack's state is the only memory. `make up` and `make down` are infra/up/deploy.py.
"""

from __future__ import annotations

from collections import Counter

import pytest

from rehearsal.azure.resources.resource_kinds import SUBSCRIPTION
from rehearsal.scenario.stack_changes import KEPT
from tests.infra.up import engine_stack
from tests.infra.up.engine_stack import Stack, needs_pulumi

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
    UserAssignedIdentity=2,
    RoleAssignment=7,
    VirtualMachine=1,
    VirtualMachineScaleSet=1,
    VirtualMachineRunCommandByVirtualMachine=2,
)
RESULTS = Counter(KEPT)
DELETIONS = 9
"""The token's container, seven roles and the group; Azure deletes what is in the group."""


@pytest.fixture
def environment() -> dict[str, str]:
    return {"ARM_SUBSCRIPTION_ID": SUBSCRIPTION}


@pytest.mark.parametrize(
    "kill",
    [
        *(f"after {operation}" for operation in range(1, EVERYTHING.total() + 1)),
        *(f"before {operation}" for operation in range(1, EVERYTHING.total() + 1, 7)),
    ],
)
def test_make_up_after_a_killed_up_makes_everything_once_and_replaces_nothing(
    stack: Stack, environment: dict[str, str], kill: str
) -> None:
    assert stack.up(AZURE_KILL=kill).returncode != 0
    done = stack.make_target("up", **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert Counter(stack.kinds()) == EVERYTHING
    assert "replaced" not in done.stdout


def test_attributes_of_the_state_that_were_being_written_are_made_again(
    declared: Stack, environment: dict[str, str]
) -> None:
    # gocloud.dev's files of attributes are written in place.
    (attributes,) = (declared.folder.parent / "state").rglob("dev.json.attrs")
    attributes.write_text("")
    done = declared.make_target("up", **environment)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("operation", range(1, DELETIONS + 1))
def test_make_down_after_a_killed_destroy_leaves_the_results_alone(
    declared: Stack, environment: dict[str, str], operation: int, when: str
) -> None:
    killed = declared.pulumi("destroy", "--yes", "--skip-preview", AZURE_KILL=f"{when} {operation}")
    assert killed.returncode != 0
    done = declared.make_target("destroy", **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert Counter(declared.kinds()) == RESULTS
