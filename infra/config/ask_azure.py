"""Asks Azure for the sizes and prices of a stack's location, before anything is created."""

from dataclasses import replace

import pulumi

from infra.config.catalog import Catalog
from infra.config.cost import prices_from, unpriced
from infra.config.quota import listed, sizes_in_use
from infra.config.resource_skus import SKUS, machines
from infra.config.retail_prices import NoPriceError, vm_price
from infra.config.stack_settings import StackSettings
from infra.config.vm_sizes import LISTED, LOCATIONS, SIZES, Sizes, canonical_size

PRICE_TIMEOUT_S = 5
TOLD_BY_AZURE = ("spot", "encryption_at_host", "zones", "restricted", "restricted_zones")
"""What Azure decides also for the sizes of the dated file. What machines are declared with is the
file's: an `up` in which Azure does not answer must not replace them."""

FREE = {"restricted": False, "restricted_zones": frozenset[str]()}


def ask_azure(settings: StackSettings, prefix: str) -> Catalog:
    """Returns Azure's sizes and prices, or those of the dated files where it does not answer.

    With checkQuota false nothing is asked.

    Args:
        prefix: Prefix of the stack's resources; a size of machines that exist is not restricted.
    """
    catalog = Catalog(asked=True)
    if not settings.check_quota or settings.location not in LOCATIONS:
        return catalog
    try:
        catalog = replace(catalog, sizes=_sizes(settings, prefix), from_azure=True)
    except Exception as error:  # The login may lack rights that `up` itself does not need.
        pulumi.log.warn(
            f"Azure did not list the VM sizes of {settings.location} ({error}): "
            f"using the list of {LISTED.as_of}, which does not show restrictions"
        )
    return _with_prices(settings.with_catalog(catalog))


def _sizes(settings: StackSettings, prefix: str) -> Sizes:
    sizes = dict(machines(listed(SKUS.format(settings.location))))
    if not sizes:
        raise ValueError("an empty list")
    for size in sizes.keys() & SIZES.keys():
        told = {name: getattr(sizes[size], name) for name in TOLD_BY_AZURE}
        sizes[size] = SIZES[size].model_copy(update=told)
    wanted = {canonical_size(size, sizes) for size in _sizes_of(settings)}
    if any(
        sizes[size].restricted or sizes[size].restricted_zones for size in wanted & sizes.keys()
    ):
        for size in sizes_in_use(prefix, settings.resource_group) & sizes.keys():
            sizes[size] = sizes[size].model_copy(update=FREE)
    return sizes


def _sizes_of(settings: StackSettings) -> list[str]:
    return [settings.head_size, *settings.worker_sizes]


def _with_prices(settings: StackSettings) -> Catalog:
    """Returns the settings' catalog; with Azure's prices of the VMs where the file has none."""
    catalog = settings.catalog
    file = catalog.prices
    if file.location == settings.location and not unpriced(settings):
        return catalog
    vm_hour = dict(file.vm_hour)
    try:
        for size in set(_sizes_of(settings)) & catalog.sizes.keys():
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
