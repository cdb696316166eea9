"""The sizes and prices with which a stack is checked and its cost is estimated."""

from dataclasses import dataclass, field

from infra.config.prices import Prices, prices
from infra.config.vm_sizes import SIZES, Sizes


@dataclass(frozen=True)
class Catalog:
    """Sizes and prices of a stack's location; by default those of the dated files."""

    sizes: Sizes = field(default_factory=lambda: SIZES)
    prices: Prices = field(default_factory=prices)
    asked: bool = False
    """Whether somebody has decided on this catalog, so that Azure need not be asked."""
    from_azure: bool = False
    """Whether Azure has listed the sizes: all of the location, with zones and restrictions."""
    priced_by_azure: bool = False
    """Whether the VMs' prices are Azure's of today, in the stack's location."""
