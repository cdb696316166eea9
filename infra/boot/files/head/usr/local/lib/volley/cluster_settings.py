"""What the stack says of the cluster as a whole: how large it may be, and what it costs.

The run command `scaling` brings it: a change of it changes no machine and no training.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from cluster_room import Node
from places import CLUSTER_SETTINGS


@dataclass(frozen=True)
class Dollars:
    """Estimated prices of an hour, in US dollars."""

    head: float
    worker: float
    """Of each worker, with its disk."""
    always: float
    """What is billed while the head sleeps, too: its disk, addresses and the NAT gateway."""
    estimate: str
    """Whose prices: "eastus, 2026-01-31"."""


@dataclass(frozen=True)
class ClusterSettings:
    """Settings of the stack; infra/stack/scaling.py writes them."""

    scaling: str
    """demand, fixed or cpu: who says how many workers there are."""
    min_workers: int
    max_workers: int
    sleep_after_minutes: int
    """The idle head deallocates itself after so long; 0 is never."""
    max_hours: int
    """So long after its start the head deallocates itself; 0 is never."""
    budget: int
    """The head deallocates itself when the cluster has cost so many US dollars; 0 is never."""
    scale_set: str
    """Resource ids."""
    head_vm: str
    head: Node
    """What Ray has of each machine."""
    worker: Node
    dollars: Dollars

    @property
    def largest(self) -> list[Node]:
        """The nodes of the cluster with all its workers."""
        return [self.head, *[self.worker] * self.max_workers]


def read_settings() -> ClusterSettings | None:
    """Returns the settings; None before the run command has brought them."""
    try:
        values = json.loads(CLUSTER_SETTINGS.read_text())
    except FileNotFoundError:
        return None
    values |= {role: Node(**values[role]) for role in ("head", "worker")}
    return ClusterSettings(**{**values, "dollars": Dollars(**values["dollars"])})
