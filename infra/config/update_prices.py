"""`make prices`: updates infra/config/prices.json from Azure's public retail prices."""

import argparse
import json
import sys
import urllib.error
from datetime import UTC, datetime
from pathlib import Path

from infra.config.prices import DISK_SIZES_GIB, FILE, Prices, VmPrice, prices
from infra.config.retail_prices import ADDRESS, Item, NoPriceError, first, items, vm_price
from infra.config.vm_sizes import LOCATIONS, SIZES
from payload.atomic_file import replace_text
from payload.experiment import nearest

TIERS = (6, 10, 15, 20, 30, 40)
"""Numbers of Azure's disk tiers for DISK_SIZES_GIB: P6 and E6 have 64 GiB."""
EVERYWHERE = ("Global", "")
"""The API's location of a price that is the same everywhere."""


def main(arguments: list[str], address: str = ADDRESS, file: Path = FILE) -> int:
    """Returns 0, or 2 if a price is missing; then the file is unchanged."""
    location = location_of("prices", arguments)
    if location is None:
        return 2
    try:
        read = read_prices(location, address)
    except (NoPriceError, urllib.error.URLError, TimeoutError) as error:
        print(f"prices: {error}; {file.name} is unchanged", file=sys.stderr)
        return 2
    replace_text(file, json.dumps(read.model_dump(), indent=1) + "\n")
    print(f"{file}: {len(read.vm_hour)} VM sizes in {location}, {read.as_of}")
    return 0


def location_of(what: str, arguments: list[str]) -> str | None:
    """Returns the location to query; prints an error and returns None if Azure does not have it."""
    parser = argparse.ArgumentParser(prog=f"make {what}", description=f"Update Azure's {what}.")
    parser.add_argument("--location", default="eastus", help="Azure region (default: eastus)")
    location: str = parser.parse_args(arguments).location
    if location in LOCATIONS:
        return location
    problem = f"is not an Azure location{nearest(location, LOCATIONS)}"
    print(f"{what}: --location {location}: {problem}", file=sys.stderr)
    return None


def read_prices(location: str, address: str) -> Prices:
    """Reads every price from Azure.

    Raises:
        NoPriceError: Azure lists no price for something.
        urllib.error.URLError: Azure does not answer.
    """
    storage = list(items(address, f"serviceName eq 'Storage' and armRegionName eq '{location}'"))
    blobs = [item for item in storage if item["productName"] == "General Block Blob v2"]
    where = f"serviceName eq 'Bandwidth' and armRegionName eq '{location}'"
    # By Microsoft's own network, which is the default; without the first GB, which are free.
    transfer = [
        item
        for item in items(address, where)
        if item["productName"] == "Rtn Preference: MGN" and item["retailPrice"] > 0
    ]
    nat = list(items(address, "serviceName eq 'NAT Gateway'"))
    network = list(items(address, "serviceName eq 'Virtual Network'"))
    return Prices(
        as_of=datetime.now(UTC).strftime("%Y-%m"),
        location=location,
        source="Azure's public retail prices",
        vm_hour=_vm_prices(location, address),
        premium_disk_month=_disks(storage, location, "Premium SSD Managed Disks", "P"),
        standard_disk_month=_disks(storage, location, "Standard SSD Managed Disks", "E"),
        nat_gateway_hour=_price(nat, location, "Standard Gateway", "1 Hour"),
        nat_gateway_gb=_price(nat, location, "Standard Data Processed", "1 GB"),
        public_address_hour=_price(network, location, "Standard IPv4 Static Public IP", "1 Hour"),
        private_endpoint_hour=_price(network, location, "Standard Private Endpoint", "1 Hour"),
        private_endpoint_gb=_price(network, location, "Standard Data Processed - Ingress", "1 GB"),
        blob_gb_month=_price(blobs, location, "Hot LRS Data Stored", "1 GB/Month"),
        transfer_gb=_price(transfer, location, "Standard Data Transfer Out", "1 GB"),
    )


def _vm_prices(location: str, address: str) -> dict[str, VmPrice]:
    """Returns the prices of the sizes in sizes.json.

    One that the location does not have is left out, unless the file has had its price before.
    """
    found = {}
    for size in SIZES:
        try:
            price = vm_price(location, size, address)
        except NoPriceError:
            if size in prices().vm_hour:
                raise
            continue
        if price.spot is None and size in prices().vm_hour:
            raise NoPriceError(f"Azure lists no price for {size}, Spot")
        found[size] = price
    return found


def _disks(items: list[Item], location: str, product: str, letter: str) -> dict[int, float]:
    disks = [item for item in items if item["productName"] == product]
    return {
        size: _price(disks, location, f"{letter}{tier} LRS Disk", "1/Month")
        for size, tier in zip(DISK_SIZES_GIB, TIERS, strict=True)
    }


def _price(items: list[Item], location: str, meter: str, unit: str) -> float:
    """Returns the price of a meter in a location, or else the price for all locations."""
    named = [item for item in items if (item["meterName"], item["unitOfMeasure"]) == (meter, unit)]
    here = [item for item in named if item["armRegionName"] == location]
    return first(here or [item for item in named if item["armRegionName"] in EVERYWHERE], meter)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
