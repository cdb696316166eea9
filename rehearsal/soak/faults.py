"""The faults of a soak, and which of them can happen now."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from random import Random

from rehearsal.scenario.context import Context
from rehearsal.scenario.laptop import Volley


@dataclass(frozen=True)
class Cluster:
    """What a fault can reach."""

    context: Context
    volley: Volley
    random: Random
    """The fault's own: what other faults draw does not change it."""


@dataclass(frozen=True)
class Fault:
    name: str
    breaks: str
    """Two faults that break the same thing do not overlap."""
    happen: Callable[[Cluster], str]
    """Breaks something, waits, mends it, and returns what it did."""


def draw(faults: Sequence[Fault], broken: Collection[str], random: Random) -> Fault | None:
    """Returns a fault of something that is not broken already; None if everything is."""
    possible = [fault for fault in faults if fault.breaks not in broken]
    return random.choice(possible) if possible else None
