"""Azure's resource SKUs: what each VM size of a location has, and where it is restricted.

https://learn.microsoft.com/rest/api/compute/resource-skus/list
"""

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from infra.config.vm_sizes import Machine, Sizes

SKUS = "/providers/Microsoft.Compute/skus?api-version=2021-07-01&%24filter=location%20eq%20%27{}%27"
RESOURCE_DISK, NVME_DISK = "ResourceDisk", "NvmeDisk"


class _Answer(BaseModel):
    """Part of an answer; Azure adds fields, and `az` writes null for empty ones."""

    model_config = ConfigDict(alias_generator=to_camel, frozen=True, extra="ignore")


class Capability(_Answer):
    name: str
    value: str


class LocationInfo(_Answer):
    location: str
    zones: tuple[str, ...] | None = None


class RestrictionInfo(_Answer):
    zones: tuple[str, ...] | None = None


class Restriction(_Answer):
    """Where the subscription cannot have the size: reason QuotaId or NotAvailableForSubscription.

    Of the type Location it is for all of the location, of the type Zone for the zones.
    """

    type: str
    restriction_info: RestrictionInfo | None = None


class ResourceSku(_Answer):
    """One SKU of Microsoft.Compute, a VM size among others."""

    name: str
    resource_type: str
    family: str | None = None
    capabilities: tuple[Capability, ...] | None = None
    location_info: tuple[LocationInfo, ...] | None = None
    restrictions: tuple[Restriction, ...] | None = None


def machines(skus: Iterable[Mapping[str, Any]]) -> Sizes:
    """Returns the VM sizes among the SKUs of one location, by name."""
    found = {}
    for sku in map(ResourceSku.model_validate, skus):
        has = {capability.name: capability.value for capability in sku.capabilities or ()}
        # Azure lists some sizes with hardly a capability.
        if sku.resource_type == "virtualMachines" and {"vCPUs", "MemoryGB"} <= has.keys():
            found[sku.name] = _machine(sku, has)
    return found


def _machine(sku: ResourceSku, has: Mapping[str, str]) -> Machine:
    placement, local_disk_gib = _local_disk(has)
    restricted = {one.type: one.restriction_info for one in sku.restrictions or ()}
    zonal = restricted.get("Zone")
    return Machine(
        size=sku.name,
        # Sizes with constrained vCPUs have fewer than their family's.
        vcpus=int(has.get("vCPUsAvailable") or has["vCPUs"]),
        memory_gib=float(has["MemoryGB"]),
        quota_family=sku.family or "",
        gpus=int(has.get("GPUs", 0)),
        local_disk_gib=local_disk_gib,
        placement=placement,
        nvme_only=has.get("DiskControllerTypes") == "NVMe",
        accelerated_networking=_is_true(has, "AcceleratedNetworkingEnabled"),
        spot=_is_true(has, "LowPriorityCapable"),
        encryption_at_host=_is_true(has, "EncryptionAtHostSupported"),
        gen2="V2" in has.get("HyperVGenerations", "V1"),
        arm=has.get("CpuArchitectureType") == "Arm64",
        zones=frozenset(zone for info in sku.location_info or () for zone in info.zones or ()),
        restricted="Location" in restricted,
        restricted_zones=frozenset(zonal.zones or () if zonal else ()),
    )


def _local_disk(has: Mapping[str, str]) -> tuple[Any, int]:
    """Returns the local disk for an ephemeral OS disk, and its GiB; 0 where there is none."""
    placements = has.get("SupportedEphemeralOSDiskPlacements", RESOURCE_DISK).split(",")
    if _is_true(has, "EphemeralOSDiskSupported"):
        for placement, key in (
            (RESOURCE_DISK, "MaxResourceVolumeMB"),
            (NVME_DISK, "NvmeDiskSizeInMiB"),
        ):
            if placement in placements and (mib := int(has.get(key, 0))):
                return placement, mib // 1024
    return RESOURCE_DISK, 0


def _is_true(has: Mapping[str, str], capability: str) -> bool:
    return has.get(capability, "False").lower() == "true"
