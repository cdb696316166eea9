"""VM sizes, and Azure's locations."""

from __future__ import annotations

from dataclasses import dataclass

EPHEMERAL_MARGIN_GIB = 1
"""Azure uses this much of a local disk."""


@dataclass(frozen=True)
class Machine:
    """One VM size."""

    size: str
    vcpus: int
    memory_gib: float
    quota_family: str
    gpus: int = 0
    gpu_model: str = ""
    temp_disk_gib: int = 0
    """Local disk, for an ephemeral OS disk; 0 where the size has none."""
    accelerated_networking: bool = True
    """Every size below has it: https://learn.microsoft.com/azure/virtual-machines/sizes/overview"""

    def fits_os_disk(self, gib: int) -> bool:
        """Whether an ephemeral OS disk of this size fits on the local disk."""
        return self.temp_disk_gib >= gib + EPHEMERAL_MARGIN_GIB

    @classmethod
    def named(cls, size: str) -> Machine:
        return SIZES[size]


_T4, _A100, _H100 = (
    "Standard NCASv3_T4 Family",
    "StandardNCADSA100v4Family",
    "StandardNCadsH100v5Family",
)
_DAS, _DADS, _DS, _EAS = (f"standard{name}v5Family" for name in ("DAS", "DADS", "DS", "EAS"))

SIZES = {
    machine.size: machine
    for machine in (
        Machine("Standard_NC4as_T4_v3", 4, 28, _T4, 1, "T4", 176),
        Machine("Standard_NC8as_T4_v3", 8, 56, _T4, 1, "T4", 352),
        Machine("Standard_NC16as_T4_v3", 16, 110, _T4, 1, "T4", 352),
        Machine("Standard_NC64as_T4_v3", 64, 440, _T4, 4, "T4", 2816),
        Machine("Standard_NC24ads_A100_v4", 24, 220, _A100, 1, "A100", 64),
        Machine("Standard_NC48ads_A100_v4", 48, 440, _A100, 2, "A100", 128),
        Machine("Standard_NC96ads_A100_v4", 96, 880, _A100, 4, "A100", 256),
        Machine("Standard_NC40ads_H100_v5", 40, 320, _H100, 1, "H100"),
        Machine("Standard_NC80adis_H100_v5", 80, 640, _H100, 2, "H100"),
        Machine("Standard_D2as_v5", 2, 8, _DAS),
        Machine("Standard_D4as_v5", 4, 16, _DAS),
        Machine("Standard_D8as_v5", 8, 32, _DAS),
        Machine("Standard_D16as_v5", 16, 64, _DAS),
        Machine("Standard_D2ads_v5", 2, 8, _DADS, temp_disk_gib=75),
        Machine("Standard_D4ads_v5", 4, 16, _DADS, temp_disk_gib=150),
        Machine("Standard_D8ads_v5", 8, 32, _DADS, temp_disk_gib=300),
        Machine("Standard_D16ads_v5", 16, 64, _DADS, temp_disk_gib=600),
        Machine("Standard_D2s_v5", 2, 8, _DS),
        Machine("Standard_D4s_v5", 4, 16, _DS),
        Machine("Standard_D8s_v5", 8, 32, _DS),
        Machine("Standard_D16s_v5", 16, 64, _DS),
        Machine("Standard_E2as_v5", 2, 16, _EAS),
        Machine("Standard_E4as_v5", 4, 32, _EAS),
        Machine("Standard_E8as_v5", 8, 64, _EAS),
    )
}

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
        "boots no Gen2 image, cannot encrypt its host, and retires on 2028-05-01; "
        "its successor is Standard_D2as_v5",
    ),
    **dict.fromkeys(
        ("Standard_NV6ads_A10_v5", "Standard_NV12ads_A10_v5", "Standard_NV36ads_A10_v5"),
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


def canonical_size(text: str) -> str:
    """Returns a size as Azure spells it; STANDARD_D2_V2 and NC6 are understood."""
    spellings = {name.lower(): name for name in (*SIZES, *RETIRED, *UNSUITABLE)}
    lower = text.lower()
    return spellings.get(lower) or spellings.get(f"standard_{lower}") or text
