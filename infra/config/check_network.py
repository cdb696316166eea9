"""Checks of the network: address ranges, room for the workers, and ids of existing resources."""

import re
from collections.abc import Iterator
from ipaddress import AddressValueError, IPv4Network, NetmaskValueError

from infra.config.stack_settings import Problem, StackSettings
from infra.ports import TO_EVERY_NODE, TO_HEAD

AZURE_RESERVED_ADDRESSES = 5
"""Azure reserves these in each subnet: network, gateway, two for DNS, broadcast."""
SMALLEST_SUBNET = 29
OWN_PREFIX = 24
"""Of the subnets that volley declares by default."""
RAY_IS_OPEN = {
    "headSubnetId": (TO_EVERY_NODE, "every worker"),
    "workerSubnetId": (TO_HEAD, "the head and of every worker"),
}
"""Which ports the NSG rules open to a subnet, and of which machines."""


def check_network(settings: StackSettings) -> Iterator[Problem]:
    """Checks that every machine gets an address, in new or existing subnets."""
    yield from check_workers(settings)
    yield from check_subnets(settings)
    yield from check_resource_ids(settings)


def check_workers(settings: StackSettings) -> Iterator[Problem]:
    """Checks that the subnet has an address for every worker."""
    if settings.max_workers < settings.min_workers:
        allowed = f"is less than minWorkers, {settings.min_workers}"
        yield Problem("maxWorkers", settings.max_workers, allowed)
    subnet = parse_cidr(settings.worker_subnet_cidr)
    if subnet is None or settings.worker_subnet_id:
        return
    room = subnet.num_addresses - AZURE_RESERVED_ADDRESSES
    if settings.max_workers > room:
        yield Problem(
            "workerSubnetCidr",
            settings.worker_subnet_cidr,
            f"has room for {max(0, room)} machines, fewer than maxWorkers, {settings.max_workers}",
        )


def check_subnets(settings: StackSettings) -> Iterator[Problem]:
    """Checks that both subnets are inside the virtual network and do not overlap."""
    keys = {
        "vnetCidr": settings.vnet_cidr,
        "headSubnetCidr": settings.head_subnet_cidr,
        "workerSubnetCidr": settings.worker_subnet_cidr,
    }
    networks = {key: parse_cidr(value) for key, value in keys.items()}
    for key, network in networks.items():
        if network is None:
            yield Problem(key, keys[key], "must be an IPv4 CIDR, for example 10.42.0.0/24")
        elif network.prefixlen > SMALLEST_SUBNET:
            yield Problem(key, keys[key], f"is smaller than Azure's smallest, /{SMALLEST_SUBNET}")
    vnet, head, worker = networks.values()
    for key, subnet in list(networks.items())[1:]:
        if vnet is not None and subnet is not None and not subnet.subnet_of(vnet):
            yield Problem(key, keys[key], f"lies outside vnetCidr, {vnet}")
    if head is not None and worker is not None and head.overlaps(worker):
        yield Problem("workerSubnetCidr", str(worker), f"overlaps headSubnetCidr, {head}")


def check_resource_ids(settings: StackSettings) -> Iterator[Problem]:
    """Checks that existing resources are given by resource id."""
    subnet = "Microsoft.Network/virtualNetworks/<vnet>/subnets/<subnet>"
    # A VM can only join a vnet of its own subscription and location.
    near = ", in the stack's own subscription and location"
    ids = {
        "headSubnetId": (settings.head_subnet_id, subnet, near),
        "workerSubnetId": (settings.worker_subnet_id, subnet, near),
        "resultsAccountId": (
            settings.results_account_id,
            "Microsoft.Storage/storageAccounts/<account>",
            ", in any subscription that you may use",
        ),
        **{
            key: (
                value,
                "Microsoft.ManagedIdentity/userAssignedIdentities/<identity>",
                ", in the stack's own subscription",
            )
            for key, value in (
                ("headIdentityId", settings.head_identity_id),
                ("mlflowIdentityId", settings.mlflow_identity_id),
                ("workersIdentityId", settings.workers_identity_id),
            )
        },
        "containerRegistryId": (
            settings.container_registry_id,
            "Microsoft.ContainerRegistry/registries/<registry>",
            ", in any subscription that you may use",
        ),
        "logAnalyticsWorkspaceId": (
            settings.log_analytics_workspace_id,
            "Microsoft.OperationalInsights/workspaces/<workspace>",
            ", in any subscription that you may use",
        ),
    }
    for key, (value, kind, where) in ids.items():
        template = f"/subscriptions/<id>/resourceGroups/<group>/providers/{kind}"
        pattern = re.sub("<[^>]*>", "[^/]+", template)
        if value and not re.fullmatch(pattern, value, re.IGNORECASE):
            yield Problem(key, value, f"must look like {template}{where}")
    identities = {
        "headIdentityId": settings.head_identity_id,
        "mlflowIdentityId": settings.mlflow_identity_id,
        "workersIdentityId": settings.workers_identity_id,
    }
    given = [value for value in identities.values() if value]
    for key, value in identities.items():
        if given and not value:
            yield Problem(key, value, f"required too, besides {', '.join(identities)}")
        elif given and given.count(value) > 1:
            yield Problem(key, value, "is given twice: an identity has the roles of one service")
    if bool(settings.head_subnet_id) != bool(settings.worker_subnet_id):
        missing = "workerSubnetId" if settings.head_subnet_id else "headSubnetId"
        yield Problem(missing, "", "required too: both subnets exist, or neither does")
    elif settings.head_subnet_id and settings.head_subnet_id == settings.worker_subnet_id:
        allowed = "is the same as headSubnetId; head and workers need separate subnets"
        yield Problem("workerSubnetId", settings.worker_subnet_id, allowed)


def width_of_subnet(key: str, cidr: str) -> str | None:
    """Returns what an existing subnet opens Ray to, if it is wider than one of volley's own."""
    subnet = parse_cidr(cidr)
    if subnet is None or subnet.prefixlen >= OWN_PREFIX:
        return None
    ports, target = RAY_IS_OPEN[key]
    listed = ", ".join(port for opened in ports for port in opened.ports)
    return (
        f"{key}: this subnet, {subnet}, opens Ray's ports ({listed}) of {target} to "
        f"{subnet.num_addresses:,} addresses, and its token alone protects them. Better: a subnet "
        f"for this cluster alone, /{OWN_PREFIX} or smaller"
    )


def parse_cidr(text: str) -> IPv4Network | None:
    """Returns the network, or None where the text is not a CIDR (10.0.0.5/24 has host bits)."""
    try:
        return IPv4Network(text)
    except (AddressValueError, NetmaskValueError, ValueError):
        return None
