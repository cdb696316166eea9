"""Checks of the VM sizes: Azure offers them to the subscription, and the cluster can use them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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

MOST_SIZES = 5
"""https://learn.microsoft.com/azure/virtual-machine-scale-sets/instance-mix-overview"""
CUDA = {family_key(family) for family in CUDA_FAMILIES}


@dataclass(frozen=True)
class Wanted:
    """Machines that a setting asks for."""

    key: str
    size: str
    spot: bool
    zones: Sequence[str]
    """Any of these will do; empty: anywhere in the location."""
    count: int


def check_sizes(settings: StackSettings) -> Iterator[Problem]:
    """Yields a problem for each size that is unknown, retired, restricted or unsuitable."""
    anywhere = [settings.zone] if settings.zone else []
    workers = settings.worker_spot, settings.worker_zones or anywhere, settings.max_workers
    for wanted in (
        Wanted("headSize", settings.head_size, settings.head_spot, anywhere, 1),
        Wanted("workerSize", settings.worker_size, *workers),
        *(Wanted("otherWorkerSizes", size, *workers) for size in settings.other_worker_sizes),
    ):
        if reason := _problem(settings, wanted):
            yield Problem(wanted.key, wanted.size, reason)
    if len(settings.worker_sizes) > MOST_SIZES:
        others = len(settings.other_worker_sizes)
        yield Problem("otherWorkerSizes", others, f"too many; at most {MOST_SIZES - 1} sizes")


def _problem(settings: StackSettings, wanted: Wanted) -> str:
    if reason := RETIRED.get(wanted.size) or UNSUITABLE.get(wanted.size):
        return reason
    machine = settings.catalog.sizes.get(wanted.size)
    if machine is None:
        return _unknown(settings, wanted.size)
    if wanted.count and (reason := refusal(settings, machine, wanted.spot, wanted.zones)):
        spot = "headSpot" if wanted.key == "headSize" else "workerSpot"
        no_spot = f" or {spot} false" if wanted.spot and not machine.spot else ""
        return f"{reason}. {_next(settings, wanted, machine)}{no_spot}"
    return _unlike(settings, machine) if wanted.key == "otherWorkerSizes" else ""


def refusal(
    settings: StackSettings, machine: Machine, spot: bool, zones: Sequence[str] = ()
) -> str:
    """Returns why the stack cannot have machines of a size; empty if it can."""
    location, wanted = settings.location, set(zones)
    zone = " or ".join(zones)
    reasons = {
        f"is not available to this subscription in {location}": machine.restricted,
        f"is not in zone {zone} of {location}, {_only(machine)}": wanted
        and settings.catalog.from_azure
        and not wanted & machine.zones,
        f"is not available to this subscription in zone {zone} of {location}": wanted
        and wanted <= machine.restricted_zones,
        "has no Spot VMs": spot and not machine.spot,
        "does not support encryption at host": not machine.encryption_at_host,
        "has Arm CPUs, which neither the image nor the lock supports": machine.arm,
        "does not support Gen2 images": not machine.gen2,
        "has GPUs that the image's driver or the lock's torch does not support": machine.gpus
        and family_key(machine.quota_family) not in CUDA,
    }
    return next((reason for reason, applies in reasons.items() if applies), "")


def _unlike(settings: StackSettings, machine: Machine) -> str:
    """Returns how a size differs from workerSize in what a scale set's sizes must share."""
    first = settings.catalog.sizes.get(settings.worker_size)
    if first is None:
        return ""  # workerSize has its own problem.
    if settings.worker_sizes.count(machine.size) > 1:
        return "is listed twice, or is workerSize"
    for what, of_first, of_other in (
        ("vCPUs", first.vcpus, machine.vcpus),
        ("GPUs", first.gpus, machine.gpus),
        ("having only NVMe disks", first.nvme_only, machine.nvme_only),
        ("a local disk", first.local_disk_gib > 0, machine.local_disk_gib > 0),
        (
            "an OS disk on the local disk",
            settings.has_ephemeral_worker_disks,
            machine.fits_os_disk(settings.os_disk_gib),
        ),
        ("accelerated networking", first.accelerated_networking, machine.accelerated_networking),
    ):
        if of_first != of_other:
            return f"differs from workerSize {first.size} in {what}, which all workers must share"
    return ""


def nearest_size(
    settings: StackSettings, machine: Machine, spot: bool, zones: Sequence[str] = ()
) -> str:
    """Returns the size most like another that the stack can have, with a GPU or without; or ""."""
    allowed = [
        other
        for other in settings.catalog.sizes.values()
        if bool(other.gpus) == bool(machine.gpus)
        and not (other.size in RETIRED or other.size in UNSUITABLE)
        and not refusal(settings, other, spot, zones)
    ]

    def distance(other: Machine) -> tuple[float, bool, str]:
        apart = abs(log2(other.vcpus / machine.vcpus))
        apart += abs(log2(other.memory_gib / machine.memory_gib))
        if machine.gpus:
            apart += abs(log2(other.gpus / machine.gpus))
        # Of sizes alike, one that is known well, and no burstable one.
        return round(apart, 3), other.size not in SIZES, other.size

    return min(allowed, key=distance).size if allowed else ""


def _next(settings: StackSettings, wanted: Wanted, machine: Machine) -> str:
    size = nearest_size(settings, machine, wanted.spot, wanted.zones)
    if not size:
        return "No size like it is allowed there: use another location"
    value = f"'[\"{size}\"]'" if wanted.key == "otherWorkerSizes" else size
    return f"Next: pulumi config set {wanted.key} {value}"


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
