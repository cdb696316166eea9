"""How experiments share the cluster: who trains, and with how many env runners.

First come, first served: an experiment starts as soon as there is room for one of its env runners,
and those behind it wait until it has started. One that names a number of env runners gets them
before those behind it. The others share what is left evenly, and a search keeps what it had at its
start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from cluster_room import Needs, Node, Room


@dataclass(frozen=True)
class Claim:
    """An experiment that trains or wants to."""

    name: str
    needs: Needs
    running: bool = False
    env_runners: int = 0
    """That it was started with or told last."""
    now: bool = False
    """Experiments behind it make room."""


@dataclass(frozen=True)
class Shares:
    """Who trains."""

    env_runners: dict[str, int]
    """Of each experiment that is to train."""
    requeued: list[str] = field(default_factory=list)
    """Those that are to write a checkpoint and wait."""


def share(claims: Sequence[Claim], nodes: Sequence[Node]) -> Shares:
    """Returns who trains on these nodes, and with how many env runners.

    Args:
        claims: In the order in which they are served.
    """
    training = [claim for claim in claims if claim.running]
    requeued: list[Claim] = []
    for claim in claims:
        if claim in training or claim in requeued:
            continue
        leaving = _making_room(claims, training, claim, nodes)
        if leaving is None:
            break
        requeued += leaving
        training = [one for one in [*training, claim] if one not in leaving]
    in_order = [claim for claim in claims if claim in training]
    return Shares(_distribute(in_order, nodes), [claim.name for claim in requeued])


def fits(needs: Needs, nodes: Sequence[Node]) -> bool:
    """Whether an experiment trains on these nodes when it is alone."""
    return Room(nodes).take_least(needs)


def _making_room(
    claims: Sequence[Claim], training: Sequence[Claim], claim: Claim, nodes: Sequence[Node]
) -> list[Claim] | None:
    """Returns those that leave so that `claim` fits, which is nobody as a rule; None: it waits."""
    place = claims.index(claim)
    before = [one for one in claims[:place] if one in training]
    behind = [one for one in claims[place:] if one in training]
    for staying in range(len(behind), -1 if claim.now else len(behind) - 1, -1):
        if _fits_beside(claim, before, behind[:staying], nodes):
            return behind[staying:]
    return None


def _fits_beside(
    claim: Claim, before: Sequence[Claim], behind: Sequence[Claim], nodes: Sequence[Node]
) -> bool:
    room = Room(nodes)
    for one in (*before, *behind):
        room.take_least(one.needs)
    for one in (*before, *behind):
        if one.needs.search:
            room.take_env_runners(one.needs, one.env_runners - one.needs.least)
    for one in before:
        if one.needs.num_env_runners is not None and not one.needs.search:
            room.take_env_runners(one.needs, one.needs.num_env_runners - one.needs.least)
    return room.take_least(claim.needs)


def _distribute(claims: Sequence[Claim], nodes: Sequence[Node]) -> dict[str, int]:
    room = Room(nodes)
    found = {}
    for claim in claims:
        # A node may have gone away under one that trains: it continues.
        room.take_least(claim.needs)
        found[claim.name] = claim.needs.least
    # Ray reserves nothing for a driver. One that is alone leaves it a CPU at its start, as `place`
    # does, but not when a node goes away. Beside others the numbers that were asked for come first.
    alone = len(claims) == 1
    for claim in claims:
        if claim.running and (alone or claim.needs.search):
            kept = claim.env_runners - claim.needs.least
            found[claim.name] += room.take_env_runners(claim.needs, kept)
    if alone:
        room.take_driver(claims[0].needs)
    growing = [claim for claim in claims if not (claim.running and claim.needs.search)]
    for claim in growing:
        if not _shares_evenly(claim.needs):
            more = (claim.needs.num_env_runners or 0) - found[claim.name]
            found[claim.name] += room.take_env_runners(claim.needs, more)
    for claim in claims if not alone else []:
        room.take_driver(claim.needs)
    _share_evenly([claim for claim in growing if _shares_evenly(claim.needs)], room, found)
    return found


def _share_evenly(claims: list[Claim], room: Room, found: dict[str, int]) -> None:
    while claims:
        # The one with the fewest CPUs so far, and of several the first.
        poorest = min(claims, key=lambda one: found[one.name] * one.needs.cpus_per_env_runner)
        if room.take_env_runners(poorest.needs, 1):
            found[poorest.name] += 1
        else:
            claims.remove(poorest)


def _shares_evenly(needs: Needs) -> bool:
    return needs.search or needs.num_env_runners is None
