"""Checks the vCPU quota before anything is created; Azure refuses only when network and head exist.

https://learn.microsoft.com/rest/api/compute/usage/list
"""

import json
import re
import urllib.request
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi_azure_native import authorization

from infra.config.stack_settings import StackSettings
from infra.config.vm_sizes import family_key

MANAGEMENT = "https://management.azure.com"
USAGES = "/providers/Microsoft.Compute/locations/{}/usages?api-version=2024-07-01"
GROUPS = "/resourcegroups?api-version=2021-04-01"
MACHINES = "/resourcegroups/{}/providers/Microsoft.Compute/virtualMachines?api-version=2024-07-01"
REGION, SPOT = "cores", "lowPriorityCores"
"""The quotas of a location besides those of the VM families. Spot VMs need only the second."""
TIMEOUT_S = 20


@dataclass(frozen=True)
class Usage:
    """One quota of the subscription in a location."""

    name: str
    used: int
    limit: int


class QuotaError(pulumi.RunError):
    """A quota is too small for a new stack."""


def check_quota(settings: StackSettings, prefix: str) -> None:
    """Compares what a new stack needs with the free quota; warns if Azure does not show it.

    The quota of a stack that exists is not checked: Azure counts its machines as used.

    Args:
        prefix: Prefix of the stack's resources.

    Raises:
        QuotaError: Names each quota that is too small.
    """
    try:
        exists = _exists(prefix, settings.resource_group)
        usages = [] if exists else list(_usages(settings.location))
    except Exception as error:  # The check needs rights that `up` itself does not need.
        pulumi.log.warn(f"The quota for vCPUs was not checked: {error}")
        return
    if missing := list(too_small(needed_vcpus(settings), usages)):
        lines = "\n".join(f"  {line}" for line in missing)
        raise QuotaError(
            f"The quota in {settings.location} is too small; nothing was created.\n{lines}\n"
            "Request more in the portal under Quotas, or change headSize, workerSize, maxWorkers, "
            "workerSpot or location. `pulumi config set checkQuota false` skips this check."
        )


def needed_vcpus(settings: StackSettings) -> Counter[str]:
    """Returns the vCPUs that all machines need, by the names of the quotas."""
    needed: Counter[str] = Counter()
    for machine, count, spot in (
        (settings.head, 1, settings.head_spot),
        (settings.worker, settings.max_workers, settings.worker_spot),
    ):
        for quota in (SPOT,) if spot else (machine.quota_family, REGION):
            needed[quota] += machine.vcpus * count
    return +needed


def too_small(needed: Mapping[str, int], usages: Iterable[Usage]) -> Iterator[str]:
    """Yields a line for each quota that is too small; one that Azure does not list is skipped."""
    by_key = {family_key(usage.name): usage for usage in usages}
    for name, vcpus in needed.items():
        usage = by_key.get(family_key(name))
        if usage is not None and usage.used + vcpus > usage.limit:
            yield (
                f"{usage.name}: {vcpus} vCPUs are needed, {max(0, usage.limit - usage.used)} are "
                f"free (limit {usage.limit}, {usage.used} in use)"
            )


def _exists(prefix: str, group: str) -> bool:
    """Whether the stack's head exists, or the group that the stack makes for it."""
    if group:
        machines = listed(MACHINES.format(group))
        return any(machine["name"] == f"{prefix}-head" for machine in machines)
    return any(_own_groups(prefix))


def sizes_in_use(prefix: str, group: str) -> set[str]:
    """Returns the VM sizes of the stack's machines that exist.

    Args:
        group: The existing group of the stack; "" for a stack that makes its own.
    """
    return {
        machine["properties"]["hardwareProfile"]["vmSize"]
        for name in ([group] if group else _own_groups(prefix))
        for machine in listed(MACHINES.format(name))
        if machine["name"].startswith(f"{prefix}-")
    }


def _own_groups(prefix: str) -> Iterator[str]:
    """Yields the groups that a stack of this prefix made: their names end with Pulumi's suffix."""
    for group in listed(GROUPS):
        if re.fullmatch(f"{prefix}[0-9a-f]{{8}}", group["name"]):
            yield group["name"]


def _usages(location: str) -> Iterator[Usage]:
    for usage in listed(USAGES.format(location)):
        yield Usage(usage["name"]["value"], usage["currentValue"], usage["limit"])


def listed(path: str) -> Iterator[dict[str, Any]]:
    """Yields what Azure Resource Manager lists, from all pages.

    Args:
        path: That of a resource, or one below the login's subscription.
    """
    subscription = authorization.get_client_config().subscription_id
    token = authorization.get_client_token().token
    within = "" if path.startswith("/subscriptions/") else f"/subscriptions/{subscription}"
    url = f"{MANAGEMENT}{within}{path}"
    while url:
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
            page: dict[str, Any] = json.load(response)
        yield from page["value"]
        url = page.get("nextLink", "")
