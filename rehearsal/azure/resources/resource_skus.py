"""Azure's resource SKUs: the list, and the machines that Azure refuses by it.

https://learn.microsoft.com/rest/api/compute/resource-skus/list
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from infra.config.vm_sizes import SIZES, Machine
from rehearsal.azure.azure_errors import ArmError
from rehearsal.azure.resources.resource_kinds import Properties, Resource

Restricted = Mapping[str, Sequence[str]]
"""Sizes that the subscription cannot have, with the zones in which it cannot; none: in no part of
the location. New subscriptions have such in 2026: https://github.com/Azure/AKS/issues/5746"""
ZONES = ("1", "2", "3")
_BOTH = "ResourceDisk,CacheDisk"
_OTHERS = """\
D128ds_v6 StandardDdsv6Family vCPUs=128 MemoryGB=512 HyperVGenerations=V2 \
NvmeDiskSizeInMiB=7208960 SupportedEphemeralOSDiskPlacements=NvmeDisk DiskControllerTypes=NVMe
F16s_v2 standardFSv2Family vCPUs=16 MemoryGB=32 MaxResourceVolumeMB=131072
B1s standardBSFamily vCPUs=1 MemoryGB=1 MaxResourceVolumeMB=4096 LowPriorityCapable=False \
AcceleratedNetworkingEnabled=False
D16plds_v5 standardDPLDSv5Family vCPUs=16 MemoryGB=32 HyperVGenerations=V2 \
CpuArchitectureType=Arm64 MaxResourceVolumeMB=614400
A0 standardA0_A7Family vCPUs=1 MemoryGB=0.75 HyperVGenerations=V1 MaxResourceVolumeMB=20480 \
EphemeralOSDiskSupported=False LowPriorityCapable=False EncryptionAtHostSupported=False \
AcceleratedNetworkingEnabled=False
"""
"""Sizes that infra's file lacks, as Azure listed them for southcentralus on 2025-06-03:
https://github.com/Azure/karpenter-provider-azure, pkg/fake/zz_generated.sku.southcentralus.go"""
_MOST = {
    "HyperVGenerations": "V1,V2",
    "CpuArchitectureType": "x64",
    "MaxResourceVolumeMB": "0",
    "EphemeralOSDiskSupported": "True",
    "SupportedEphemeralOSDiskPlacements": _BOTH,
    "LowPriorityCapable": "True",
    "EncryptionAtHostSupported": "True",
    "AcceleratedNetworkingEnabled": "True",
}


def listed(location: str, restricted: Restricted) -> list[Properties]:
    """Returns the list for a location, of disks too."""
    disk = {"resourceType": "disks", "name": "Premium_LRS", "locations": [location]}
    return [disk, *(_sku(size, location, restricted) for size in SKUS)]


def vcpus(size: str) -> tuple[str, int]:
    """Returns a size's quota family, and how many vCPUs it takes of it."""
    family, has = SKUS[size]
    return family, int(has["vCPUs"])


def refusal(machines: Resource, before: Resource | None, restricted: Restricted) -> ArmError | None:
    """Returns why Azure makes no machine of this size.

    Machines that exist stay when their size becomes restricted. That a scale set of such a size is
    made while it has no machines is an assumption: Azure documents nothing of it.
    """
    sizes, storage, count = _wanted(machines)
    if before is not None:
        sizes_before, _, count_before = _wanted(before)
        if sizes_before == sizes and count <= count_before:
            return None
    location, zones = machines.inputs.get("location", ""), machines.inputs.get("zones") or ()
    refused = [
        size
        for size in sizes
        if (where := restricted.get(size)) is not None and (not where or set(where) & set(zones))
    ]
    if count and refused == sizes:
        return ArmError(
            "SkuNotAvailable",
            "The requested VM size for resource 'Following SKUs have failed for Capacity "
            f"Restrictions: {', '.join(sizes)}' is currently not available in location "
            f"'{location}'. Please try another size or deploy to a different location or "
            "different zone. See https://aka.ms/azureskunotavailable for details.",
        )
    return next(filter(None, (_unfit(size, storage) for size in sizes)), None)


def _unfit(size: str, storage: Properties) -> ArmError | None:
    """Returns what in a storage profile the size does not have."""
    _, has = SKUS[size]
    controller = storage.get("diskControllerType")
    if controller and controller not in has.get("DiskControllerTypes", "SCSI").split(","):
        message = f"The VM size '{size}' cannot boot with DiskControllerType '{controller}'."
        return ArmError("InvalidParameter", message, 400)
    placement = (storage.get("osDisk", {}).get("diffDiskSettings") or {}).get("placement")
    if placement and placement not in has["SupportedEphemeralOSDiskPlacements"].split(","):
        message = f"The Diff Disk Placement of type '{placement}' is not supported for VM size "
        return ArmError("InvalidParameter", f"{message}{size}.", 400)
    return None


def sizes_of(inputs: Properties) -> list[str]:
    """Returns a scale set's sizes, in the order in which Azure tries them.

    https://learn.microsoft.com/azure/virtual-machine-scale-sets/instance-mix-overview
    """
    if inputs["sku"]["name"] != "Mix":
        return [inputs["sku"]["name"]]
    ranked = sorted(inputs["skuProfile"]["vmSizes"], key=lambda size: int(size["rank"]))
    return [size["name"] for size in ranked]


def _wanted(machines: Resource) -> tuple[list[str], Properties, int]:
    """Returns the sizes, the storage profile and the number of machines."""
    inputs = machines.inputs
    if machines.kind == "VirtualMachine":
        return [inputs["hardwareProfile"]["vmSize"]], inputs.get("storageProfile", {}), 1
    storage = inputs["virtualMachineProfile"].get("storageProfile", {})
    return sizes_of(inputs), storage, int(inputs["sku"]["capacity"])


def _sku(size: str, location: str, restricted: Restricted) -> Properties:
    family, has = SKUS[size]
    restrictions: list[Properties] = []
    if size in restricted:
        zones = list(restricted[size])
        restrictions.append(
            {
                "type": "Zone" if zones else "Location",
                "values": [location],
                "restrictionInfo": {"locations": [location], "zones": zones},
                "reasonCode": "NotAvailableForSubscription",
            }
        )
    return {
        "resourceType": "virtualMachines",
        "name": size,
        "family": family,
        "locations": [location],
        "locationInfo": [{"location": location, "zones": list(ZONES), "zoneDetails": []}],
        "capabilities": [{"name": name, "value": value} for name, value in has.items()],
        "restrictions": restrictions,
    }


def _of_file(machine: Machine) -> tuple[str, dict[str, str]]:
    has: dict[str, Any] = {**_MOST, "vCPUs": machine.vcpus, "MemoryGB": f"{machine.memory_gib:g}"}
    if machine.gpus:
        has["GPUs"] = machine.gpus
    if machine.nvme_only:
        has |= {"DiskControllerTypes": "NVMe", "HyperVGenerations": "V2"}
        has["SupportedEphemeralOSDiskPlacements"] = "NvmeDisk"
        has["NvmeDiskSizeInMiB"] = machine.local_disk_gib * 1024
    else:
        has["MaxResourceVolumeMB"] = machine.local_disk_gib * 1024
    has["EphemeralOSDiskSupported"] = machine.local_disk_gib > 0
    return machine.quota_family, {name: str(value) for name, value in has.items()}


def _of_line(line: str) -> tuple[str, dict[str, str]]:
    _, family, *fields = line.split()
    return family, {**_MOST, **dict(field.split("=") for field in fields)}


SKUS = {size: _of_file(machine) for size, machine in SIZES.items()} | {
    f"Standard_{line.split()[0]}": _of_line(line) for line in _OTHERS.splitlines()
}
"""By size: family and capabilities."""
