"""Whether anybody needs the cluster."""

from __future__ import annotations

import time
from dataclasses import dataclass

from ..queue.cluster_state import read_cluster_state
from ..queue.store import Store
from .logins import logins

STALE_S = 120.0
"""The queue's view of Ray counts for this long."""


@dataclass(frozen=True)
class Need:
    """Who needs the cluster."""

    who: str
    """Empty: nobody."""
    certain: bool = True
    """An unknown state counts as a need, too."""


def need() -> Need:
    """Returns who needs the cluster now."""
    try:
        who = unfinished() or _logged_in() or _drivers()
    except Exception as error:
        return Need(f"unknown: {error}", certain=False)
    return Need(who)


def unfinished() -> str:
    """Returns the names of the experiments that are not over."""
    return ", ".join(record.name for record in Store().records() if not record.over)


def _drivers() -> str:
    cluster = read_cluster_state()
    if time.time() - cluster.time > STALE_S:
        raise LookupError(f"the queue has not seen Ray for {STALE_S:.0f} s")
    return f"{cluster.drivers} Ray drivers" if cluster.drivers else ""


def _logged_in() -> str:
    commands = logins()
    return f"logged in: {commands[0][:100]}" if commands else ""
