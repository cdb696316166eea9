"""Operations in which a run of pulumi was killed, in the stack's exported state.

https://github.com/pulumi/pulumi-azure-native/issues/1123
"""

from __future__ import annotations

from typing import Any

from infra.up.resource_ids import RESOURCE_IDS, resource_id

AZURE_NATIVE = "azure-native:"


def pending_operations(state: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the operations of an exported state in which a run was killed."""
    operations: list[dict[str, Any]] = state["deployment"].get("pending_operations") or []
    return operations


def name_of(operation: dict[str, Any]) -> str:
    """Returns "VirtualMachine volley-dev-head"."""
    urn = operation["resource"]["urn"]
    return f"{_kind(urn)} {urn.rpartition('::')[2]}"


def without_pending(state: dict[str, Any], subscription: str) -> tuple[dict[str, Any], list[str]]:
    """Returns a state without pending operations, and the URNs that must be refreshed.

    A resource that was being created is in the state as if it existed; its id follows from names.
    """
    deployment = dict(state["deployment"])
    resources = list(deployment.get("resources") or [])
    urns = []
    for operation in pending_operations(state):
        resource = dict(operation["resource"])
        urn = resource["urn"]
        kind = _kind(urn)
        if operation["type"] == "creating":
            if kind not in RESOURCE_IDS or not subscription:
                continue  # Not in Azure, or the first resource group, which is empty then.
            resource["id"] = resource_id(kind, resource["inputs"], subscription)
            resource.setdefault("outputs", {})
            resources.append(resource)
        if AZURE_NATIVE in resource["type"]:
            urns.append(urn)
    deployment |= {"resources": resources, "pending_operations": []}
    return {**state, "deployment": deployment}, urns


def with_declared_inputs(state: dict[str, Any], pending: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns a state in which the resources that were being created have their declared inputs.

    For a resource without outputs, a refresh records all that Azure has added as inputs. The next
    run would remove them, and replace a VM for that.
    """
    declared = {
        operation["resource"]["urn"]: operation["resource"]["inputs"]
        for operation in pending
        if operation["type"] == "creating"
    }
    resources = [
        {**resource, "inputs": declared[resource["urn"]]}
        if resource["urn"] in declared
        else resource
        for resource in state["deployment"].get("resources") or []
    ]
    return {**state, "deployment": {**state["deployment"], "resources": resources}}


def _kind(urn: str) -> str:
    """Returns "Subnet" of a URN."""
    return urn.split("::")[-2].rpartition("$")[2].rpartition(":")[2]
