"""Asks Azure for the sizes and prices of a stack's location, before anything is created."""

from dataclasses import replace

import pulumi

from infra.config.catalog import Catalog
from infra.config.cost import prices_from, unpriced
from infra.config.quota import listed
from infra.config.resource_skus import SKUS, machines
from infra.config.retail_prices import NoPriceError, vm_price
from infra.config.stack_settings import StackSettings
from infra.config.vm_sizes import LISTED, LOCATIONS, SIZES, Sizes

PRICE_TIMEOUT_S = 5
TOLD_BY_AZURE = ("spot", "encryption_at_host", "zones", "restricted", "restricted_zones")
"""What Azure decides also for the sizes of the dated file. What machines are declared with is the
file's: an `up` in which Azure does not answer must not replace them."""


def ask_azure(settings: StackSettings) -> Catalog:
    """Returns Azure's sizes and prices, or those of the dated files where it does not answer.

    With checkQuota false nothing is asked.
    """
    catalog = Catalog(asked=True)
    if not settings.check_quota or settings.location not in LOCATIONS:
        return catalog
    try:
        catalog = replace(catalog, sizes=_sizes(settings.location), from_azure=True)
    except Exception as error:  # The login may lack rights that `up` itself does not need.
        pulumi.log.warn(
            f"Azure did not list the VM sizes of {settings.location} ({error}): "
            f"those of the list of {LISTED.as_of} are known, and no restriction is"
        )
    return _with_prices(settings.with_catalog(catalog))


def _sizes(location: str) -> Sizes:
    found = machines(listed(SKUS.format(location)))
    if not found:
        raise ValueError("an empty list")
    for size in found.keys() & SIZES.keys():
        told = {name: getattr(found[size], name) for name in TOLD_BY_AZURE}
        found = {**found, size: SIZES[size].model_copy(update=told)}
    return found


def _with_prices(settings: StackSettings) -> Catalog:
    """Returns the settings' catalog; with Azure's prices of the VMs where the file has none."""
    catalog = settings.catalog
    file = catalog.prices
    if file.location == settings.location and not unpriced(settings):
        return catalog
    vm_hour = dict(file.vm_hour)
    try:
        for size in {settings.head_size, settings.worker_size} & catalog.sizes.keys():
            vm_hour.pop(size, None)
            try:
                vm_hour[size] = vm_price(settings.location, size, timeout_s=PRICE_TIMEOUT_S)
            except NoPriceError as error:
                pulumi.log.warn(str(error))
    except (OSError, ValueError) as error:
        pulumi.log.info(f"Azure's prices were not read: {error}")
    else:
        own = file.model_copy(update={"vm_hour": vm_hour})
        catalog = replace(catalog, prices=own, priced_by_azure=True)
    pulumi.log.info(f"Prices: {prices_from(settings.with_catalog(catalog))}")
    return catalog
