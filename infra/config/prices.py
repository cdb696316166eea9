"""Azure's prices, from one dated file that `make prices` updates."""

from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict

FILE = Path(__file__).with_name("prices.json")
DISK_SIZES_GIB = (64, 128, 256, 512, 1024, 2048)
"""Azure bills a managed disk as the next of these sizes."""


class VmPrice(BaseModel):
    """Price per hour of a VM with Linux."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    regular: float
    spot: float | None
    """None where Azure lists none: some sizes have no Spot VMs."""


class Prices(BaseModel):
    """The prices of one location, in US dollars."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    as_of: str
    location: str
    source: str
    vm_hour: dict[str, VmPrice]
    """By VM size."""
    premium_disk_month: dict[int, float]
    """Premium SSD with local redundancy, by the size in GiB."""
    standard_disk_month: dict[int, float]
    """Standard SSD with local redundancy, by the size in GiB."""
    nat_gateway_hour: float
    nat_gateway_gb: float
    public_address_hour: float
    private_endpoint_hour: float
    private_endpoint_gb: float
    """In either direction."""
    blob_gb_month: float
    """Blob storage, hot, with local redundancy: current, replaced and soft-deleted blobs alike."""
    transfer_gb: float
    """To the internet, after FREE_TRANSFER_GB."""

    def disk_month(self, gib: int, premium: bool) -> float:
        by_size = self.premium_disk_month if premium else self.standard_disk_month
        return by_size[next(size for size in DISK_SIZES_GIB if size >= gib)]


@cache
def prices() -> Prices:
    return Prices.model_validate_json(FILE.read_text())
