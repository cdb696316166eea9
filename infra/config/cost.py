"""The cost of a stack: everything that Azure bills, per hour and for each `up`.

The prices are those of the settings' catalog.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from infra.config.prices import VmPrice
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
    """Returns the prices of an hour; a VM whose price is unknown counts as 0: prices_from."""
    return Hourly(
        head=_machine_hour(settings, settings.head_size, settings.head_spot),
        # The most expensive size: a budget must not depend on what Azure has in stock.
        worker=max(
            _machine_hour(settings, size, settings.worker_spot) for size in settings.worker_sizes
        )
        + _worker_disk_hour(settings),
        always=sum(item.per_hour for item in _always(settings)),
        stored_gb=settings.catalog.prices.blob_gb_month / HOURS_PER_MONTH,
    )


def prices_from(settings: StackSettings) -> str:
    """Returns where the prices are from, and which are unknown: "eastus, 2026-06"."""
    catalog = settings.catalog
    text = f"{catalog.prices.location}, {catalog.prices.as_of}"
    if catalog.priced_by_azure:
        text += f"; VMs: {settings.location}, from Azure"
    if unknown := unpriced(settings):
        text += f"; without {' and '.join(unknown)}, whose price is unknown"
    return text


def unpriced(settings: StackSettings) -> list[str]:
    """Returns the stack's machines without a known price: "Standard_D2as_v6, Spot"."""
    machines = [(settings.head_size, settings.head_spot)]
    if settings.max_workers:
        machines += [(size, settings.worker_spot) for size in settings.worker_sizes]
    names = [_named(size, spot) for size, spot in machines if _price(settings, size, spot) is None]
    return list(dict.fromkeys(names))


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
    head = f"| US dollars, {prices_from(settings)} | an hour | an `up` |"
    return "\n".join([head, "|---|--:|--:|", *lines])


def _machines(settings: StackSettings) -> Iterator[Billed]:
    for name, count, size, spot in (
        ("head", 1, settings.head_size, settings.head_spot),
        ("workers", settings.max_workers, settings.worker_size, settings.worker_spot),
    ):
        if count:
            what = name if count == 1 else f"{count} {name}"
            unknown = "" if _price(settings, size, spot) is not None else " (price unknown)"
            hour = count * _machine_hour(settings, size, spot)
            yield Billed(f"{what}, {_named(size, spot)}{unknown}", hour)
    if settings.max_workers and (worker := _worker_disk_hour(settings)):
        what = f"OS disks of the workers, {settings.os_disk_gib} GiB Standard SSD"
        yield Billed(what, settings.max_workers * worker)


def _named(size: str, spot: bool) -> str:
    return f"{size}, Spot" if spot else size


def _machine_hour(settings: StackSettings, size: str, spot: bool) -> float:
    return _price(settings, size, spot) or 0.0


def _price(settings: StackSettings, size: str, spot: bool) -> float | None:
    price: VmPrice | None = settings.catalog.prices.vm_hour.get(size)
    if price is None:
        return None
    return price.spot if spot else price.regular


def _worker_disk_hour(settings: StackSettings) -> float:
    if settings.has_ephemeral_worker_disks:
        return 0.0
    return settings.catalog.prices.disk_month(settings.os_disk_gib, premium=False) / HOURS_PER_MONTH


def _always(settings: StackSettings) -> Iterator[Billed]:
    """The disk that a deallocated head keeps, and the network."""
    price, size = settings.catalog.prices, settings.os_disk_gib
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
    if settings.has_private_endpoint:
        yield Billed("private endpoint of the results account", price.private_endpoint_hour)


def _data(settings: StackSettings) -> Iterator[Billed]:
    """What is stored, and what is sent."""
    price = settings.catalog.prices
    stored = RESULTS_GB * price.blob_gb_month / HOURS_PER_MONTH
    yield Billed(f"{RESULTS_GB} GB in the results account, replaced and deleted blobs too", stored)
    if settings.has_private_endpoint:
        taken = DOWNLOADED_GB * (1 + settings.max_workers)
        yield Billed(
            f"{taken:g} GB through the private endpoint", per_up=taken * price.private_endpoint_gb
        )
    yield Billed(
        f"data to the internet: {FREE_TRANSFER_GB} GB a month are free, "
        f"then {price.transfer_gb:g} a GB"
    )
