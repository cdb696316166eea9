"""VM sizes, and Azure's locations.

Azure tells what a size has (infra/config/resource_skus.py). sizes.json has the sizes that most
people use, for those who have not logged in; here is what Azure does not tell.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

EPHEMERAL_MARGIN_GIB = 1
"""Azure uses this much of a local disk."""
LARGEST_EPHEMERAL_GIB = 2040
"""https://learn.microsoft.com/azure/virtual-machines/ephemeral-os-disks"""
FILE = Path(__file__).with_name("sizes.json")


class Machine(BaseModel):
    """One VM size; the defaults are those of most sizes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    size: str
    vcpus: int
    memory_gib: float
    quota_family: str
    gpus: int = 0
    local_disk_gib: int = 0
    """Space for an ephemeral OS disk; 0 where the size takes none."""
    placement: Literal["ResourceDisk", "NvmeDisk"] = "ResourceDisk"
    """Which local disk that is."""
    nvme_only: bool = False
    """Whether it boots from disks at an NVMe controller only, as v6 and v7 do."""
    accelerated_networking: bool = True
    spot: bool = True
    encryption_at_host: bool = True
    gen2: bool = True
    arm: bool = False
    zones: frozenset[str] = frozenset()
    """Availability zones that have it; known only from Azure."""
    restricted: bool = False
    """Whether Azure does not offer it to the subscription in the location."""
    restricted_zones: frozenset[str] = frozenset()

    def fits_os_disk(self, gib: int) -> bool:
        """Whether an ephemeral OS disk of this size fits on the local disk."""
        return gib + EPHEMERAL_MARGIN_GIB <= min(self.local_disk_gib, LARGEST_EPHEMERAL_GIB)

    @classmethod
    def named(cls, size: str) -> Machine:
        return SIZES[size]


Sizes = Mapping[str, Machine]
"""By name."""


class SizesFile(BaseModel):
    """sizes.json."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    as_of: str
    source: str
    sizes: dict[str, dict[str, str | int | float | bool]]
    """Fields of a machine that differ from the defaults, by size."""

    def machines(self) -> Sizes:
        return {
            size: Machine.model_validate({"size": size, **fields})
            for size, fields in self.sizes.items()
        }


LISTED = SizesFile.model_validate_json(FILE.read_text())
SIZES = LISTED.machines()

CUDA_FAMILIES = (
    "Standard NCASv3_T4 Family",
    "StandardNCADSA100v4Family",
    "StandardNCadsH100v5Family",
    "Standard NDASv4_A100 Family",
    "Standard NDAMSv4_A100Family",
    "standardNDSH100v5Family",
    "standardNDISRH200V5Family",
)
"""Families whose GPUs the image's driver and the lock's torch run on: NVIDIA's, from Turing on."""

RETIRED = {
    f"Standard_{size}": f"retired on {date}; its successor is Standard_{successor}"
    for date, successor, sizes in (
        ("2023-09-06", "NC4as_T4_v3", "NC6 NC12 NC24 NC24r"),
        ("2023-09-06", "NC4as_T4_v3", "NC6_Promo NC12_Promo NC24_Promo NC24r_Promo"),
        ("2023-09-06", "NC4as_T4_v3", "NC6s_v2 NC12s_v2 NC24s_v2 NC24rs_v2"),
        ("2023-09-06", "NC24ads_A100_v4", "ND6s ND12s ND24s ND24rs"),
        ("2023-09-06", "NC4as_T4_v3", "NV6 NV12 NV24 NV6_Promo NV12_Promo NV24_Promo"),
        ("2025-09-30", "NC4as_T4_v3", "NC6s_v3 NC12s_v3 NC24s_v3 NC24rs_v3"),
        ("2026-09-30", "NC4as_T4_v3", "NV12s_v3 NV24s_v3 NV48s_v3"),
        ("2026-09-30", "NC4as_T4_v3", "NV4as_v4 NV8as_v4 NV16as_v4 NV32as_v4"),
    )
    for size in sizes.split()
}
"""GPU sizes that Azure has retired, and what replaces them.

https://learn.microsoft.com/azure/virtual-machines/sizes/retirement/retired-sizes-list
"""

UNSUITABLE = {
    **dict.fromkeys(
        ("Standard_D1_v2", "Standard_D2_v2", "Standard_D3_v2", "Standard_D4_v2"),
        "supports neither Gen2 images nor encryption at host, and retires on 2028-05-01; "
        "its successor is Standard_D2as_v5",
    ),
    **dict.fromkeys(
        [f"Standard_NV{n}_A10_v5" for n in ("6ads", "12ads", "18ads", "36ads", "36adms", "72ads")],
        "needs NVIDIA's GRID driver, which the image does not have; use Standard_NC4as_T4_v3",
    ),
}
"""Sizes that Azure offers and this cluster cannot use."""

_LOCATIONS = """\
australiacentral australiaeast australiasoutheast austriaeast brazilsouth canadacentral canadaeast
centralindia centralus chilecentral eastasia eastus eastus2 francecentral germanywestcentral
indonesiacentral israelcentral italynorth japaneast japanwest koreacentral koreasouth malaysiawest
mexicocentral newzealandnorth northcentralus northeurope norwayeast polandcentral qatarcentral
southafricanorth southcentralus southeastasia southindia spaincentral swedencentral
switzerlandnorth uaenorth uksouth ukwest westcentralus westeurope westindia westus westus2 westus3
"""
LOCATIONS = tuple(_LOCATIONS.split())


def canonical_size(text: str, sizes: Sizes = SIZES) -> str:
    """Returns a size as Azure spells it; STANDARD_D2_V2 and NC6 are understood."""
    spellings = {name.lower(): name for name in (*sizes, *RETIRED, *UNSUITABLE)}
    lower = text.lower()
    return spellings.get(lower) or spellings.get(f"standard_{lower}") or text


def family_key(name: str) -> str:
    """Returns a family's name without case and spaces, in which Azure's APIs differ."""
    return name.replace(" ", "").lower()
