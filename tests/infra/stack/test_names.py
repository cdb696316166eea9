"""Azure accepts the resource names of every stack name that Pulumi accepts.

https://learn.microsoft.com/azure/azure-resource-manager/management/resource-name-rules
"""

from __future__ import annotations

import re
from functools import cache

import pytest

from infra.stack.naming import resource_prefix
from tests.infra.declared_stack import Declared, declare_stack

pytestmark = pytest.mark.slow

DIGITS = 8
"""The digits that Pulumi appends to the names it chooses."""
NAMES = {
    "StorageAccount": r"[a-z0-9]{3,24}",
    "UserAssignedIdentity": r"[A-Za-z0-9][A-Za-z0-9_-]{2,127}",
    "VirtualMachine": r"[A-Za-z0-9][A-Za-z0-9-]{,62}[A-Za-z0-9]",
    "VirtualMachineScaleSet": r"[A-Za-z0-9][A-Za-z0-9-]{,62}[A-Za-z0-9]",
}
CONTAINER = r"(?!.*--)[a-z0-9][a-z0-9-]{1,61}[a-z0-9]"


@cache
def declared(stack: str) -> Declared:
    return declare_stack(stack)


@pytest.fixture(params=["dev", "Dev", "my_stack", "v1.2", "a--b", "x" * 100])
def named(request: pytest.FixtureRequest) -> Declared:
    """A stack with this name."""
    return declared(request.param)


def test_names_are_what_azure_takes(named: Declared) -> None:
    for resource in named.resources:
        pattern = NAMES.get(resource.type, r"[A-Za-z0-9][\w.-]{,79}")
        name = resource.name + "0" * DIGITS
        assert re.fullmatch(pattern, name), (resource.type, name)


def test_containers_have_names_that_azure_takes(named: Declared) -> None:
    for container in named.all("BlobContainer"):
        assert re.fullmatch(CONTAINER, container.inputs["containerName"])


def test_a_new_group_has_a_new_token_container() -> None:
    # Azure refuses a deleted container's name for half a minute.
    stack = declared("dev")
    (group,) = [group for group in stack.all("ResourceGroup") if "results" not in group.name]
    assert group.name in stack.one("BlobContainer", "token")["containerName"]


def test_the_tags_keep_the_stacks_own_name() -> None:
    assert declared("my_stack").one("VirtualMachine")["tags"]["stack"] == "my_stack"


@pytest.mark.parametrize(
    ("cluster", "prefix"),
    [
        ("volley-dev", "volley-dev"),
        ("volley-My_Stack.2", "volley-my-stack-2"),
        ("volley-a_", "volley-a"),
    ],
)
def test_a_prefix_is_near_to_the_stacks_name(cluster: str, prefix: str) -> None:
    assert resource_prefix(cluster) == prefix
