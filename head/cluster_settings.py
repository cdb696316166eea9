"""The stack's settings of the cluster as a whole: its size, its limits and its prices.

The head's run command delivers them; changing them affects no machine and no training.
"""

import json
from dataclasses import asdict, dataclass

from .paths import CLUSTER_SETTINGS
from .room import Node


@dataclass(frozen=True)
class Prices:
    """Estimated prices, in US dollars per hour."""

    head: float
    worker: float
    """Per worker, with its disk."""
    always: float
    """Billed while the head sleeps, too: its disk, addresses and the NAT gateway."""
    stored_gb: float
    """Per GB in the results account."""
    estimate: str
    """Location and date of the prices: "eastus, 2026-01-31"."""


@dataclass(frozen=True)
class ClusterSettings:
    """Settings of the stack; infra/stack/head_software.py writes them."""

    scaling: str
    """demand, fixed or cpu: what decides the number of workers."""
    min_workers: int
    max_workers: int
    sleep_after_minutes: int
    """The head deallocates itself after this time without use; 0 disables it."""
    max_hours: int
    """The head deallocates itself this long after its start; 0 disables it."""
    budget: int
    """The head deallocates itself when the cluster has cost this much, in US dollars; 0 disables
    it."""
    endpoint: str
    """Azure Resource Manager's address."""
    scale_set: str
    """Resource id."""
    head_vm: str
    """Resource id."""
    head: Node
    """The head's resources that Ray may use."""
    worker: Node
    """Each worker's resources that Ray may use."""
    prices: Prices
    security_updates: bool = False
    """Whether the head updates OpenSSH and OpenSSL while nothing trains."""
    lease: str = ""
    """Resource id of the workers' lease; empty where Azure's own rules scale them."""

    @property
    def largest(self) -> list[Node]:
        """The nodes of the cluster with all its workers."""
        return [self.head, *[self.worker] * self.max_workers]

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1)


def read_settings() -> ClusterSettings | None:
    """Returns the settings; None before the run command has delivered them."""
    try:
        values = json.loads(CLUSTER_SETTINGS.read_text())
    except FileNotFoundError:
        return None
    nodes = {role: Node(**values[role]) for role in ("head", "worker")}
    return ClusterSettings(**{**values, **nodes, "prices": Prices(**values["prices"])})
