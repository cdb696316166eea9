"""Checks of the VM sizes: Azure offers them to the subscription, and the cluster can use them."""

from collections.abc import Iterator
from math import log2

from infra.config.stack_settings import Problem, StackSettings
from infra.config.vm_sizes import (
    CUDA_FAMILIES,
    LISTED,
    RETIRED,
    SIZES,
    UNSUITABLE,
    Machine,
    family_key,
)
from payload.experiment import nearest

CUDA = {family_key(family) for family in CUDA_FAMILIES}


def check_sizes(settings: StackSettings) -> Iterator[Problem]:
    """Yields a problem for each size that is unknown, retired, restricted or unsuitable."""
    for role, size, spot, count in (
        ("head", settings.head_size, settings.head_spot, 1),
        ("worker", settings.worker_size, settings.worker_spot, settings.max_workers),
    ):
        key = f"{role}Size"
        machine = settings.catalog.sizes.get(size)
        if reason := RETIRED.get(size) or UNSUITABLE.get(size):
            yield Problem(key, size, reason)
        elif machine is None:
            yield Problem(key, size, _unknown(settings, size))
        elif count and (reason := refusal(settings, machine, spot)):
            no_spot = f" or {role}Spot false" if spot and not machine.spot else ""
            yield Problem(key, size, f"{reason}. {_next(settings, key, machine, spot)}{no_spot}")


def refusal(settings: StackSettings, machine: Machine, spot: bool) -> str:
    """Returns why the stack cannot have machines of a size; empty if it can."""
    zone, location = settings.zone, settings.location
    reasons = {
        f"is not available to this subscription in {location}": machine.restricted,
        f"is not in zone {zone} of {location}, {_only(machine)}": zone
        and settings.catalog.from_azure
        and zone not in machine.zones,
        f"is not available to this subscription in zone {zone} of {location}": zone
        in machine.restricted_zones,
        "has no Spot VMs": spot and not machine.spot,
        "cannot encrypt its disks on the host": not machine.encryption_at_host,
        "has Arm CPUs, for which neither image nor lock is made": machine.arm,
        "boots no Gen2 image": not machine.gen2,
        "has GPUs on which the image's driver or the lock's torch does not run": machine.gpus
        and family_key(machine.quota_family) not in CUDA,
    }
    return next((reason for reason, applies in reasons.items() if applies), "")


def nearest_size(settings: StackSettings, machine: Machine, spot: bool) -> str:
    """Returns the size most like another that the stack can have, with a GPU or without; or ""."""
    allowed = [
        other
        for other in settings.catalog.sizes.values()
        if bool(other.gpus) == bool(machine.gpus)
        and not (other.size in RETIRED or other.size in UNSUITABLE)
        and not refusal(settings, other, spot)
    ]

    def distance(other: Machine) -> tuple[float, bool, str]:
        apart = abs(log2(other.vcpus / machine.vcpus))
        apart += abs(log2(other.memory_gib / machine.memory_gib))
        if machine.gpus:
            apart += abs(log2(other.gpus / machine.gpus))
        # Of sizes alike, one that is known well, and no burstable one.
        return round(apart, 3), other.size not in SIZES, other.size

    return min(allowed, key=distance).size if allowed else ""


def _next(settings: StackSettings, key: str, machine: Machine, spot: bool) -> str:
    size = nearest_size(settings, machine, spot)
    if not size:
        return "No size like it is allowed there: use another location"
    return f"Next: pulumi config set {key} {size}"


def _only(machine: Machine) -> str:
    return f"only in {', '.join(sorted(machine.zones))}" if machine.zones else "nor in another zone"


def _unknown(settings: StackSettings, size: str) -> str:
    catalog = settings.catalog
    if catalog.from_azure:
        return f"is not a size of {settings.location}{nearest(size, catalog.sizes)}"
    return (
        f"is not in the list of {LISTED.as_of}{nearest(size, catalog.sizes)}; Azure knows all "
        "sizes: az login, with checkQuota true"
    )
