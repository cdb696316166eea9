"""Azure's public retail prices, which need no login.

https://learn.microsoft.com/rest/api/cost-management/retail-prices/azure-retail-prices
"""

import json
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

from infra.config.prices import VmPrice

ADDRESS = "https://prices.azure.com/api/retail/prices"
TIMEOUT_S = 60

Item = dict[str, Any]
"""A price, as the API returns it."""


class NoPriceError(Exception):
    """Azure lists no price for something, or does not answer."""


def vm_price(location: str, size: str, address: str = "", timeout_s: float = TIMEOUT_S) -> VmPrice:
    """Returns the price of a VM with Linux; Spot is None where none is listed.

    Raises:
        NoPriceError: Azure lists none.
        OSError: Azure does not answer.
    """
    where = f"armRegionName eq '{location}' and armSkuName eq '{size}'"
    priced = items(address or ADDRESS, f"serviceName eq 'Virtual Machines' and {where}", timeout_s)
    linux = [item for item in priced if "Windows" not in item["productName"]]
    spot = [item for item in linux if item["skuName"].endswith(" Spot")]
    regular = [item for item in linux if not item["skuName"].endswith((" Spot", " Low Priority"))]
    return VmPrice(regular=first(regular, size), spot=first(spot, size) if spot else None)


def first(items: list[Item], what: str) -> float:
    """Returns the price without a discount for quantity."""
    if not items:
        raise NoPriceError(f"Azure lists no price for {what}")
    return float(min(items, key=lambda item: item["tierMinimumUnits"])["retailPrice"])


def items(address: str, where: str, timeout_s: float = TIMEOUT_S) -> Iterator[Item]:
    """Yields the pay-as-you-go prices that a filter selects, from all pages."""
    query = {
        "api-version": "2023-01-01-preview",
        "$filter": f"{where} and priceType eq 'Consumption'",
    }
    url = f"{address}?{urllib.parse.urlencode(query)}"
    while url:
        with urllib.request.urlopen(url, timeout=timeout_s) as response:
            page = json.load(response)
        yield from page["Items"]
        url = page["NextPageLink"]
