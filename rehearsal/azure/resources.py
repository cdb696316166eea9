"""Which resources exist, and what Azure adds to a resource when it makes it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from ipaddress import IPv4Network
from pathlib import Path

from rehearsal import shared_file
from rehearsal.addresses import PUBLIC_ADDRESSES
from rehearsal.azure.resource_kinds import (
    KINDS,
    SUBSCRIPTION,
    Properties,
    Resource,
    Resources,
    all_of,
    short_type,
)
from rehearsal.azure.virtual_machines import virtual_machines
from rehearsal.azure.virtual_network import FIRST_HOST, subnet_cidr

CHANGED_BY_AZURE = ("identity", "ipConfigurations")
"""Inputs that Azure answers differently from how they were declared."""


class AzureError(Exception):
    """Azure refused; nothing was made or changed."""


class HalfMadeError(Exception):
    """A resource exists but did not come up; the next `up` updates it."""

    def __init__(self, reason: str, added: Properties) -> None:
        super().__init__(reason)
        self.added = added
        """What create or update would have returned."""


class Azure:
    """All resources, in a file: each `pulumi up` is a process of its own.

    Nothing stands behind them here; a subclass makes them real in `apply`. Methods may be called
    from several threads. `inputs` have all names and nothing of the engine's own.
    """

    def __init__(self, file: Path) -> None:
        self.file = file

    def resources(self) -> dict[str, Resource]:
        """Returns all resources that exist, by their ids, the oldest first."""
        if not self.file.exists():
            return {}
        known = json.loads(self.file.read_text())
        return {key: Resource(**value) for key, value in known.items()}

    def create(self, token: str, resource_id: str, inputs: Properties) -> Properties:
        """Makes a resource; returns what Azure adds to its inputs.

        Args:
            token: Its type, "azure-native:network:Subnet".

        Raises:
            AzureError: It exists already.
            HalfMadeError: It exists now, but did not come up.
        """
        with self._changing() as resources:
            if resource_id in resources:
                raise AzureError(f"cannot create already existing resource '{resource_id}'")
            added = _added(short_type(token), resource_id, inputs, resources)
            resources[resource_id] = Resource(short_type(token), inputs, added)
        return added

    def update(self, resource_id: str, inputs: Properties) -> Properties:
        """Changes the inputs of a resource; returns what Azure adds to them.

        Raises:
            HalfMadeError: It has changed, but did not come up.
        """
        with self._changing() as resources:
            kind = resources[resource_id].kind
            added = _added(kind, resource_id, inputs, resources)
            resources[resource_id] = Resource(kind, inputs, added)
        return added

    def delete(self, resource_id: str) -> None:
        """Deletes a resource with everything in it."""
        with self._changing() as resources:
            for other in list(resources):
                if f"{other}/".startswith(f"{resource_id}/"):
                    del resources[other]

    def invoke(self, token: str, arguments: Properties) -> Properties:
        """Answers a function such as getClientConfig.

        Raises:
            AzureError: There is no such function, or nothing that it asks for.
        """
        match short_type(token):
            case "getClientConfig":
                nobody = {"clientId": "", "objectId": "", "tenantId": ""}
                return {"subscriptionId": SUBSCRIPTION, **nobody}
            case "getSubnet":
                subnet_id = KINDS["Subnet"].resource_id(arguments)
                if found := self.resources().get(subnet_id):
                    return found.inputs
                raise AzureError(f"the resource '{subnet_id}' was not found")
        raise AzureError(f"the stand-in has no function {token}")

    def apply(self, resources: Resources) -> None:
        """Makes real what the resources say; an exception leaves them as they were."""

    @contextmanager
    def _changing(self) -> Iterator[dict[str, Resource]]:
        with shared_file.locked(self.file):
            resources = self.resources()
            yield resources
            self.apply(resources)
            text = json.dumps({key: asdict(one) for key, one in resources.items()}, indent=1)
            shared_file.replace(self.file, text)


def _added(kind: str, resource_id: str, inputs: Properties, resources: Resources) -> Properties:
    """Returns what Azure adds; the addresses of a resource that exists stay."""
    added: Properties = {"name": resource_id.rpartition("/")[2]}
    known = resources[resource_id].added if resource_id in resources else None
    if "identity" in inputs:  # Declared as a list, answered as keys.
        named: Properties = {key: {} for key in inputs["identity"]["userAssignedIdentities"]}
        added["identity"] = {**inputs["identity"], "userAssignedIdentities": named}
    match kind:
        case "PublicIPAddress":
            added["ipAddress"] = known["ipAddress"] if known else _free_public_address(resources)
        case "NetworkInterface":
            (configuration,) = inputs["ipConfigurations"]
            if known:
                address = known["ipConfigurations"][0]["privateIPAddress"]
            else:
                address = _free_address(resources, configuration["subnet"]["id"])
            added["ipConfigurations"] = [{**configuration, "privateIPAddress": address}]
        case "PrivateEndpoint":
            configs = [{"ipAddresses": [_free_address(resources, inputs["subnet"]["id"])]}]
            added["customDnsConfigs"] = known["customDnsConfigs"] if known else configs
        case "UserAssignedIdentity":
            for what in ("principal", "client"):
                added[f"{what}Id"] = str(uuid.uuid5(uuid.NAMESPACE_URL, what + resource_id))
    return added


def _free_address(resources: Resources, subnet_id: str) -> str:
    """Returns the lowest address of a subnet that nothing has."""
    cidr = subnet_cidr(resources[subnet_id])
    taken = {vm.address for vm in virtual_machines(resources)}
    for interface in all_of(resources, "NetworkInterface").values():
        taken |= {one["privateIPAddress"] for one in interface.added["ipConfigurations"]}
    for endpoint in all_of(resources, "PrivateEndpoint").values():
        taken |= set(endpoint.added["customDnsConfigs"][0]["ipAddresses"])
    hosts = (str(cidr[place]) for place in range(FIRST_HOST, cidr.num_addresses - 1))
    return next(address for address in hosts if address not in taken)


def _free_public_address(resources: Resources) -> str:
    taken = {
        address.added["ipAddress"] for address in all_of(resources, "PublicIPAddress").values()
    }
    hosts = map(str, IPv4Network(PUBLIC_ADDRESSES).hosts())
    return next(address for address in hosts if address not in taken)
