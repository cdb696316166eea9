"""Whether anybody needs the cluster."""

from __future__ import annotations

import time
from dataclasses import dataclass

from experiment_store import Store
from places import CLUSTER, EXPERIMENTS

from .files import read
from .logins import logins

STALE_S = 120.0
"""What the queue has seen of Ray counts for so long."""


@dataclass(frozen=True)
class Need:
    """Who needs the cluster."""

    who: str
    """Empty: nobody."""
    certain: bool = True
    """What cannot be told counts as a need, too."""


def need() -> Need:
    """Returns who needs the cluster now."""
    try:
        who = unfinished() or _logged_in() or _drivers()
    except Exception as error:
        return Need(f"cannot tell: {error}", certain=False)
    return Need(who)


def unfinished() -> str:
    """Returns the experiments that are not over."""
    return ", ".join(one.name for one in Store(EXPERIMENTS).records() if not one.over)


def _drivers() -> str:
    seen = read(CLUSTER)
    age = time.time() - seen.get("time", 0)
    if age > STALE_S or "drivers" not in seen:
        raise LookupError(f"{CLUSTER} is older than {STALE_S:.0f} s")
    return f"{seen['drivers']} Ray drivers" if seen["drivers"] else ""


def _logged_in() -> str:
    found = logins()
    return f"logged in: {found[0][:100]}" if found else ""
