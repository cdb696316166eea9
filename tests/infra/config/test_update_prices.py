"""`make prices` against a local server that answers as Azure documents."""

from __future__ import annotations

import re
from collections.abc import Iterator
from email.message import Message
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from infra.config.prices import DISK_SIZES_GIB, Prices
from infra.config.update_prices import TIERS, main
from infra.config.vm_sizes import SIZES
from tests.local_server import json_server

pytestmark = pytest.mark.slow

FIELD = re.compile(r"(\w+) eq '([^']*)'")


def item(service: str, meter: str, unit: str, price: float, **more: Any) -> dict[str, Any]:
    """Returns one price, with the relevant fields of Azure's documentation."""
    return {
        "currencyCode": "USD",
        "tierMinimumUnits": 0.0,
        "retailPrice": price,
        "armRegionName": "eastus",
        "meterName": meter,
        "productName": service,
        "skuName": meter,
        "serviceName": service,
        "unitOfMeasure": unit,
        "type": "Consumption",
        "armSkuName": "",
        **more,
    }


def vm(size: str, price: float, ending: str = "", product: str = "Series") -> dict[str, Any]:
    sku = f"{size}{ending}"
    more = {"armSkuName": size, "skuName": sku, "productName": f"Virtual Machines {product}"}
    return item("Virtual Machines", sku, "1 Hour", price, **more)


def stored(product: str, price: float) -> dict[str, Any]:
    return item("Storage", "Hot LRS Data Stored", "1 GB/Month", price, productName=product)


def sent(product: str, gb: float, price: float) -> dict[str, Any]:
    more = {"productName": product, "tierMinimumUnits": gb}
    return item("Bandwidth", "Standard Data Transfer Out", "1 GB", price, **more)


def everything() -> list[dict[str, Any]]:
    found = [
        one
        for size in SIZES
        for one in (
            vm(size, 9.0, product="Series Windows"),
            vm(size, 0.3, " Low Priority"),
            vm(size, 0.2, " Spot"),
            vm(size, 1.0),
        )
    ]
    for letter, product in (("P", "Premium"), ("E", "Standard")):
        for tier, size in zip(TIERS, DISK_SIZES_GIB, strict=True):
            product_name = f"{product} SSD Managed Disks"
            meter = f"{letter}{tier} LRS Disk"
            found.append(item("Storage", meter, "1/Month", size / 10, productName=product_name))
    nat, network = "NAT Gateway", "Virtual Network"
    return [
        *found,
        item(nat, "Standard Gateway", "1 Hour", 0.045, armRegionName="Global"),
        item(nat, "Standard Data Processed", "1 GB", 0.04, armRegionName="Global"),
        item(nat, "Standard Data Processed", "1 GB", 0.046),
        item(network, "Standard IPv4 Static Public IP", "1 Hour", 0.005),
        item(network, "Standard Private Endpoint", "1 Hour", 0.01, armRegionName="Global"),
        item(network, "Standard Private Endpoint", "1 GB", 0.02, armRegionName="Global"),
        item(network, "Standard Data Processed - Ingress", "1 GB", 0.011, armRegionName="Global"),
        *(stored(*meter) for meter in (("General Block Blob v2", 0.0208), ("Files v2", 0.0287))),
        *(sent("Rtn Preference: MGN", *tier) for tier in ((0.0, 0.0), (100.0, 0.087), (1e4, 0.08))),
        sent("Bandwidth - Routing Preference: Internet", 100.0, 0.05),
    ]


@pytest.fixture
def items() -> list[dict[str, Any]]:
    """The prices on the server; a test may change them."""
    return everything()


@pytest.fixture
def address(items: list[dict[str, Any]]) -> Iterator[str]:
    """The address of a server that takes filters `name eq 'value' and ...`; two prices per page."""

    def answer(url: str, headers: Message) -> tuple[int, Any]:
        query = {key: values[-1] for key, values in parse_qs(urlsplit(url).query).items()}
        wanted = dict(FIELD.findall(query["$filter"]))
        wanted["type"] = wanted.pop("priceType")
        found = [one for one in items if wanted.items() <= one.items()]
        first = int(query.get("$skip", 0))
        more = f"http://{headers['Host']}{url}&$skip={first + 2}"
        return 200, {
            "BillingCurrency": "USD",
            "Items": found[first : first + 2],
            "NextPageLink": more if first + 2 < len(found) else None,
        }

    with json_server(answer) as server:
        yield f"{server}/api/retail/prices"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    written = tmp_path / "prices.json"
    written.write_text("before")
    return written


def test_every_price_is_read(address: str, file: Path) -> None:
    assert main([], address, file) == 0
    found = Prices.model_validate_json(file.read_text())
    assert set(found.vm_hour) == set(SIZES)
    assert {(one.regular, one.spot) for one in found.vm_hour.values()} == {(1.0, 0.2)}
    assert found.premium_disk_month == {size: size / 10 for size in DISK_SIZES_GIB}
    assert (found.nat_gateway_hour, found.nat_gateway_gb) == (0.045, 0.046)
    assert (found.public_address_hour, found.private_endpoint_hour) == (0.005, 0.01)
    assert (found.private_endpoint_gb, found.blob_gb_month) == (0.011, 0.0208)
    assert found.transfer_gb == 0.087


def test_a_missing_price_is_named_and_leaves_the_file(
    address: str, file: Path, items: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    size = "Standard_D2as_v5"
    items[:] = [one for one in items if one["skuName"] != f"{size} Spot"]
    assert main([], address, file) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"prices: Azure lists no price for {size}, Spot; prices.json is unchanged"
    assert file.read_text() == "before"


def test_another_location_without_prices_is_refused(address: str, file: Path) -> None:
    assert main(["--location", "westeurope"], address, file) == 2


def test_a_location_that_azure_has_not_is_refused(
    address: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--location", "eastuss"], address, file) == 2
    assert "did you mean eastus" in capsys.readouterr().err


def test_a_server_that_does_not_answer_leaves_the_file(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([], "http://127.0.0.1:9/", file) == 2
    assert "Connection refused" in capsys.readouterr().err
    assert file.read_text() == "before"
