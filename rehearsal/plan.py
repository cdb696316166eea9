"""From what is declared to what has to be there: pure, and the whole of it every time."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Any

from rehearsal.azure.metadata_state import Identity, Instance
from rehearsal.azure.resource_kinds import SUBSCRIPTION
from rehearsal.machines.disk import Declared
from rehearsal.network.nftables import AppliedNsg
from rehearsal.paths import PREFIX, PUBLIC_ADDRESSES

FIRST_HOST = 4
"""Azure keeps the first addresses of a subnet for itself; the first of them is the gateway."""


@dataclass(frozen=True)
class Record:
    """A resource that was declared and made."""

    kind: str
    """The last part of its type, "VirtualMachine"."""
    inputs: dict[str, Any]
    outputs: dict[str, Any]
    """What Azure has added: addresses, principals."""


Records = Mapping[str, Record]
"""By resource id."""


@dataclass(frozen=True)
class Bridge:
    """A subnet."""

    name: str
    subnet_id: str
    cidr: IPv4Network
    has_nat: bool
    reaches_storage: bool
    """Whether it has Microsoft.Storage's service endpoint."""

    @property
    def gateway(self) -> str:
        return str(self.cidr[1])


@dataclass(frozen=True)
class Card:
    """A network interface: where it is plugged in, and what protects it."""

    owner: str
    """Host name."""
    subnet_id: str
    address: str
    nsg_id: str | None
    public_address: str | None


@dataclass(frozen=True)
class Plan:
    """All that has to be there."""

    bridges: tuple[Bridge, ...]
    virtual_network: tuple[str, ...]
    cards: tuple[Card, ...]
    machines: tuple[Declared, ...]
    nsgs: tuple[AppliedNsg, ...]
    instances: dict[str, Instance]
    """What the metadata service tells each machine, by host name."""
    accounts: dict[str, tuple[str, ...]]
    """The CIDRs that each results account lets in, by its name."""
    containers: dict[str, tuple[str, ...]]
    """Of each results account."""


def plan(records: Records) -> Plan:
    """Returns what has to be there for these resources."""
    bridges = tuple(_bridges(records))
    of_subnet = {bridge.subnet_id: bridge for bridge in bridges}
    hosts = [*_vms(records), *_scale_set_vms(records, of_subnet)]
    cards = [host.card for host in hosts]
    accounts = [record.inputs for record in _all(records, "StorageAccount").values()]
    containers = [record.inputs for record in _all(records, "BlobContainer").values()]
    return Plan(
        bridges=bridges,
        virtual_network=tuple(
            cidr
            for record in _all(records, "VirtualNetwork").values()
            for cidr in record.inputs["addressSpace"]["addressPrefixes"]
        ),
        cards=tuple(cards),
        machines=tuple(_machine(host, of_subnet[host.card.subnet_id]) for host in hosts),
        nsgs=tuple(_nsgs(records, cards)),
        instances={host.card.owner: _instance(records, host, of_subnet) for host in hosts},
        accounts={one["accountName"]: tuple(_let_in(one, bridges)) for one in accounts},
        containers={
            one["accountName"]: tuple(
                c["containerName"] for c in containers if c["accountName"] == one["accountName"]
            )
            for one in accounts
        },
    )


def free_address(records: Records, subnet_id: str) -> str:
    """Returns the lowest address of a subnet that no network interface has."""
    cidr = IPv4Network(records[subnet_id].inputs["addressPrefix"])
    taken = {card.address for card in plan(records).cards} | {
        configuration["privateIPAddress"]
        for record in _all(records, "NetworkInterface").values()
        for configuration in record.outputs["ipConfigurations"]
    }
    return next(str(address) for address in _hosts(cidr) if str(address) not in taken)


def free_public_address(records: Records) -> str:
    """Returns the lowest public address that nobody has."""
    taken = {record.outputs["ipAddress"] for record in _all(records, "PublicIPAddress").values()}
    hosts = IPv4Network(PUBLIC_ADDRESSES).hosts()
    return next(str(address) for address in hosts if str(address) not in taken)


def _all(records: Records, kind: str) -> dict[str, Record]:
    return {key: record for key, record in records.items() if record.kind == kind}


def _bridges(records: Records) -> Iterator[Bridge]:
    for place, (subnet_id, record) in enumerate(_all(records, "Subnet").items()):
        services = [point["service"] for point in record.inputs.get("serviceEndpoints") or []]
        yield Bridge(
            f"{PREFIX}{place}",
            subnet_id,
            IPv4Network(record.inputs["addressPrefix"]),
            "natGateway" in record.inputs,
            "Microsoft.Storage" in services,
        )


@dataclass(frozen=True)
class _Host:
    """A VM, be it of a scale set or not."""

    resource_id: str
    card: Card
    inputs: dict[str, Any]
    """Of the VM or the scale set."""
    profile: dict[str, Any]
    """With osProfile and priority: of the VM, or in the scale set."""
    vm_size: str
    scale_set: str = ""


def _vms(records: Records) -> Iterator[_Host]:
    for vm_id, record in _all(records, "VirtualMachine").items():
        (reference,) = record.inputs["networkProfile"]["networkInterfaces"]
        nic = records[reference["id"]]
        (configuration,) = nic.outputs["ipConfigurations"]
        public = configuration.get("publicIPAddress")
        card = Card(
            record.inputs["osProfile"]["computerName"],
            configuration["subnet"]["id"],
            configuration["privateIPAddress"],
            (nic.inputs.get("networkSecurityGroup") or {}).get("id"),
            records[public["id"]].outputs["ipAddress"] if public else None,
        )
        size = record.inputs["hardwareProfile"]["vmSize"]
        yield _Host(vm_id, card, record.inputs, record.inputs, size)


def _scale_set_vms(records: Records, of_subnet: dict[str, Bridge]) -> Iterator[_Host]:
    for set_id, record in _all(records, "VirtualMachineScaleSet").items():
        profile = record.inputs["virtualMachineProfile"]
        (nic,) = profile["networkProfile"]["networkInterfaceConfigurations"]
        (configuration,) = nic["ipConfigurations"]
        subnet_id = configuration["subnet"]["id"]
        for place in range(int(record.inputs["sku"]["capacity"])):
            card = Card(
                f"{profile['osProfile']['computerNamePrefix']}{place}",
                subnet_id,
                str(of_subnet[subnet_id].cidr[FIRST_HOST + place]),
                (nic.get("networkSecurityGroup") or {}).get("id"),
                None,
            )
            yield _Host(
                f"{set_id}/virtualMachines/{card.owner}",
                card,
                record.inputs,
                profile,
                record.inputs["sku"]["name"],
                record.inputs["vmScaleSetName"],
            )


def _machine(host: _Host, bridge: Bridge) -> Declared:
    profile = host.profile["osProfile"]
    (key,) = profile["linuxConfiguration"]["ssh"]["publicKeys"]
    return Declared(
        name=host.card.owner,
        resource_id=host.resource_id,
        bridge=bridge.name,
        address=host.card.address,
        prefix_length=bridge.cidr.prefixlen,
        gateway=bridge.gateway,
        user_data=base64.b64decode(profile["customData"]).decode(),
        admin_username=profile["adminUsername"],
        ssh_public_key=key["keyData"],
    )


def _instance(records: Records, host: _Host, of_subnet: dict[str, Bridge]) -> Instance:
    identities = [(key, records[key]) for key in host.inputs["identity"]["userAssignedIdentities"]]
    return Instance(
        name=host.card.owner,
        address=host.card.address,
        location=host.inputs["location"],
        vm_size=host.vm_size,
        resource_group=host.inputs["resourceGroupName"],
        priority=host.profile.get("priority", "Regular"),
        scale_set=host.scale_set,
        tags=host.inputs.get("tags") or {},
        identities={
            found.outputs["clientId"]: Identity(found.outputs["principalId"], resource_id=key)
            for key, found in identities
        },
        subscription_id=SUBSCRIPTION,
        subnet=str(of_subnet[host.card.subnet_id].cidr),
        public_address=host.card.public_address or "",
    )


def _nsgs(records: Records, cards: list[Card]) -> Iterator[AppliedNsg]:
    """Yields each NSG with the machines that it protects, by their subnet or their interface."""
    for nsg_id, record in _all(records, "NetworkSecurityGroup").items():
        subnets = {
            subnet_id
            for subnet_id, subnet in _all(records, "Subnet").items()
            if (subnet.inputs.get("networkSecurityGroup") or {}).get("id") == nsg_id
        }
        members = [card.address for card in cards if card.subnet_id in subnets]
        members += [card.address for card in cards if card.nsg_id == nsg_id]
        if members:
            name = record.inputs["networkSecurityGroupName"]
            yield AppliedNsg(name, record.inputs, tuple(dict.fromkeys(members)))


def _let_in(account: dict[str, Any], bridges: tuple[Bridge, ...]) -> Iterator[str]:
    """Yields who passes an account's firewall."""
    rules = account.get("networkRuleSet") or {"defaultAction": "Allow"}
    if rules["defaultAction"] == "Allow":
        yield "0.0.0.0/0"
        return
    subnets = {rule["virtualNetworkResourceId"] for rule in rules.get("virtualNetworkRules") or []}
    for bridge in bridges:
        if bridge.subnet_id in subnets and bridge.reaches_storage:
            yield str(bridge.cidr)
    for rule in rules.get("ipRules") or []:
        yield rule["iPAddressOrRange"]


def _hosts(cidr: IPv4Network) -> Iterator[Any]:
    return (cidr[place] for place in range(FIRST_HOST, cidr.num_addresses - 1))
