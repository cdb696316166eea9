"""The cost of a stack: everything that Azure bills, per hour and for each `up`.

The prices are from one dated file that `make prices` updates.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from infra.config.stack_settings import StackSettings

HOURS_PER_MONTH = 730
"""Azure's own number: https://azure.microsoft.com/pricing/calculator"""
DOWNLOADED_GB = 3.5
"""Data that a machine downloads through the NAT gateway for its Python environment.

The act `head alone` of the rehearsal measures it.
"""
RESULTS_GB = 10
"""Assumed for the estimates: the Python environment, and the runs of some days.

The head counts what is there.
"""
FREE_TRANSFER_GB = 100
"""Data to the internet that is free in each month, in the whole subscription:
https://azure.microsoft.com/pricing/details/bandwidth"""

FILE = Path(__file__).with_name("prices.json")
DISK_SIZES_GIB = (64, 128, 256, 512, 1024, 2048)
"""Azure bills a managed disk as the next of these sizes."""


class VmPrice(BaseModel):
    """Price per hour of a VM with Linux."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    regular: float
    spot: float


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


@dataclass(frozen=True)
class Billed:
    """Something that Azure bills, in US dollars."""

    what: str
    per_hour: float = 0.0
    per_up: float = 0.0


@dataclass(frozen=True)
class Hourly:
    """The price of an hour by part of the cluster, in US dollars."""

    head: float
    """While the head runs."""
    worker: float
    """Per worker, with its disk."""
    always: float
    """Until `make down`, while the head sleeps too; without what is stored."""
    stored_gb: float
    """Per GB in the results account, also after `make down`."""

    @property
    def asleep(self) -> float:
        return self.always + RESULTS_GB * self.stored_gb


def hourly(settings: StackSettings) -> Hourly:
    return Hourly(
        head=_machine_hour(settings.head_size, settings.head_spot),
        worker=_machine_hour(settings.worker_size, settings.worker_spot)
        + _worker_disk_hour(settings),
        always=sum(item.per_hour for item in _always(settings)),
        stored_gb=prices().blob_gb_month / HOURS_PER_MONTH,
    )


def billed(settings: StackSettings) -> list[Billed]:
    """Returns everything that is billed until `make down`."""
    return [*_machines(settings), *_always(settings), *_data(settings)]


def per_hour(settings: StackSettings) -> float:
    return sum(item.per_hour for item in billed(settings))


def per_up(settings: StackSettings) -> float:
    """Returns the cost of a first `up` in addition to the hours."""
    return sum(item.per_up for item in billed(settings))


def per_day(settings: StackSettings, worked_hours: float = 1.0) -> float:
    """Returns the cost of a day on which all workers train for some hours and are idle afterwards.

    The workers stay for idleMinutes more, and the head for sleepAfterMinutes.
    """
    price = hourly(settings)
    head = worked_hours + settings.sleep_after_minutes / 60
    if not (settings.has_autoscaler and settings.sleep_after_minutes):
        head = 24.0
    # Azure's own rules delete a worker each half hour, which is not estimated here.
    idle = settings.idle_minutes / 60 if settings.scaling == "demand" else 24.0
    workers = min(worked_hours + idle, head)
    least = max(head - workers, 0.0) * settings.min_workers
    worker_hours = workers * settings.max_workers + least
    return price.head * head + price.worker * worker_hours + price.asleep * 24


def cost_table(settings: StackSettings) -> str:
    """Returns everything that is billed as a table in Markdown, with the sum in its last line."""
    total = Billed("**all**", per_hour(settings), per_up(settings))
    lines = [
        f"| {item.what} | {item.per_hour:.3f} | {item.per_up:.2f} |"
        for item in [*billed(settings), total]
    ]
    head = f"| US dollars, {prices().location}, {prices().as_of} | an hour | an `up` |"
    return "\n".join([head, "|---|--:|--:|", *lines])


def _machines(settings: StackSettings) -> Iterator[Billed]:
    for name, count, size, spot in (
        ("head", 1, settings.head_size, settings.head_spot),
        ("workers", settings.max_workers, settings.worker_size, settings.worker_spot),
    ):
        if count:
            how = ", Spot" if spot else ""
            what = name if count == 1 else f"{count} {name}"
            yield Billed(f"{what}, {size}{how}", count * _machine_hour(size, spot))
    if settings.max_workers and (worker := _worker_disk_hour(settings)):
        what = f"OS disks of the workers, {settings.os_disk_gib} GiB Standard SSD"
        yield Billed(what, settings.max_workers * worker)


def _machine_hour(size: str, spot: bool) -> float:
    price = prices().vm_hour[size]
    return price.spot if spot else price.regular


def _worker_disk_hour(settings: StackSettings) -> float:
    if settings.has_ephemeral_worker_disks:
        return 0.0
    return prices().disk_month(settings.os_disk_gib, premium=False) / HOURS_PER_MONTH


def _always(settings: StackSettings) -> Iterator[Billed]:
    """The disk that a deallocated head keeps, and the network."""
    price, size = prices(), settings.os_disk_gib
    head = price.disk_month(size, premium=True) / HOURS_PER_MONTH
    yield Billed(f"OS disk of the head, {size} GiB Premium SSD", head)
    made = not settings.head_subnet_id
    if addresses := settings.public_ip + made:
        yield Billed("public IP addresses", addresses * price.public_address_hour)
    if made:
        downloaded = DOWNLOADED_GB * (1 + settings.max_workers)
        yield Billed("NAT gateway", price.nat_gateway_hour)
        yield Billed(
            f"{downloaded:g} GB through the NAT gateway", per_up=downloaded * price.nat_gateway_gb
        )
    if settings.results_account_id:
        yield Billed("private endpoint of the results account", price.private_endpoint_hour)


def _data(settings: StackSettings) -> Iterator[Billed]:
    """What is stored, and what is sent."""
    price = prices()
    stored = RESULTS_GB * price.blob_gb_month / HOURS_PER_MONTH
    yield Billed(f"{RESULTS_GB} GB in the results account, replaced and deleted blobs too", stored)
    if settings.results_account_id:
        taken = DOWNLOADED_GB * (1 + settings.max_workers)
        yield Billed(
            f"{taken:g} GB through the private endpoint", per_up=taken * price.private_endpoint_gb
        )
    yield Billed(
        f"data to the internet: {FREE_TRANSFER_GB} GB a month are free, "
        f"then {price.transfer_gb:g} a GB"
    )
