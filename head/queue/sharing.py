"""How experiments share the cluster: which train, with how many env runners, on how many workers.

First come, first served: an experiment starts as soon as there is room for one of its env runners,
and those behind it wait until it has started. An experiment that names a number of env runners gets
them before those behind it. The others share the remaining CPUs evenly, and a search keeps the env
runners that it started with.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from ..cluster_settings import ClusterSettings
from ..room import Needs, Node, Room
from .cluster_state import RayNode


@dataclass(frozen=True)
class Claim:
    """An experiment that is training or waiting to."""

    name: str
    needs: Needs
    running: bool = False
    env_runners: int = 0
    """Its present share."""
    now: bool = False
    """Experiments behind it make room."""


@dataclass(frozen=True)
class Shares:
    """The experiments that train, and those that make room."""

    env_runners: dict[str, int]
    """By the name of each experiment that is to train."""
    requeued: list[str] = field(default_factory=list)
    """Experiments that must write a checkpoint and wait."""


def share(claims: Sequence[Claim], nodes: Sequence[Node]) -> Shares:
    """Returns which experiments train on these nodes, and with how many env runners.

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
        training = [trained for trained in [*training, claim] if trained not in leaving]
    in_order = [claim for claim in claims if claim in training]
    return Shares(_distribute(in_order, nodes), [claim.name for claim in requeued])


def fits(needs: Needs, nodes: Sequence[Node]) -> bool:
    """Whether an experiment trains on these nodes when it is alone."""
    return Room(nodes).take_least(needs)


def _making_room(
    claims: Sequence[Claim], training: Sequence[Claim], claim: Claim, nodes: Sequence[Node]
) -> list[Claim] | None:
    """Returns the claims that make room for `claim`, normally none; None: it waits."""
    place = claims.index(claim)
    before = [other for other in claims[:place] if other in training]
    behind = [other for other in claims[place:] if other in training]
    for staying in range(len(behind), -1 if claim.now else len(behind) - 1, -1):
        if _fits_beside(claim, before, behind[:staying], nodes):
            return behind[staying:]
    return None


def _fits_beside(
    claim: Claim, before: Sequence[Claim], behind: Sequence[Claim], nodes: Sequence[Node]
) -> bool:
    room = Room(nodes)
    for other in (*before, *behind):
        room.take_least(other.needs)
    for other in (*before, *behind):
        if other.needs.search:
            room.take_env_runners(other.needs, other.env_runners - other.needs.least)
    for other in before:
        if other.needs.num_env_runners is not None and not other.needs.search:
            room.take_env_runners(other.needs, other.needs.num_env_runners - other.needs.least)
    return room.take_least(claim.needs)


def _distribute(claims: Sequence[Claim], nodes: Sequence[Node]) -> dict[str, int]:
    room = Room(nodes)
    shares = {}
    for claim in claims:
        # A training that has lost a node continues.
        room.take_least(claim.needs)
        shares[claim.name] = claim.needs.least
    # Ray reserves nothing for a driver. An experiment alone leaves its driver a CPU at its start,
    # as `place` does, but not when a node goes away. Beside others, requested numbers come first.
    alone = len(claims) == 1
    for claim in claims:
        if claim.running and (alone or claim.needs.search):
            kept = claim.env_runners - claim.needs.least
            shares[claim.name] += room.take_env_runners(claim.needs, kept)
    if alone:
        room.take_driver(claims[0].needs)
    growing = [claim for claim in claims if not (claim.running and claim.needs.search)]
    for claim in growing:
        if not _shares_evenly(claim.needs):
            more = (claim.needs.num_env_runners or 0) - shares[claim.name]
            shares[claim.name] += room.take_env_runners(claim.needs, more)
    for claim in claims if not alone else []:
        room.take_driver(claim.needs)
    _share_evenly([claim for claim in growing if _shares_evenly(claim.needs)], room, shares)
    return shares


def _share_evenly(claims: list[Claim], room: Room, shares: dict[str, int]) -> None:
    while claims:
        # The first of those with the fewest CPUs so far.
        poorest = min(
            claims, key=lambda claim: shares[claim.name] * claim.needs.cpus_per_env_runner
        )
        if room.take_env_runners(poorest.needs, 1):
            shares[poorest.name] += 1
        else:
            claims.remove(poorest)


def _shares_evenly(needs: Needs) -> bool:
    return needs.search or needs.num_env_runners is None


def usable_workers(
    claims: Sequence[Claim], nodes: Sequence[RayNode], settings: ClusterSettings
) -> int:
    """Returns the fewest workers that give each experiment as much as all workers would.

    Args:
        claims: In the order in which they are served.
        nodes: Ray's nodes: a machine may offer fewer CPUs than its size has.
    """
    head, worker = _node(nodes, "head", settings.head), _node(nodes, "worker", settings.worker)
    return _usable(tuple(map(_as_at_its_start, claims)), head, worker, settings.max_workers)


def _as_at_its_start(claim: Claim) -> Claim:
    # Otherwise it would keep the env runners that it has gained, and give up the driver's CPU.
    return claim if claim.needs.search else replace(claim, env_runners=0)


def _node(nodes: Sequence[RayNode], role: str, otherwise: Node) -> Node:
    seen = [Node(node.cpus, node.gpus) for node in nodes if node.role == role]
    return min(seen, key=lambda node: node.cpus, default=otherwise)


@lru_cache(maxsize=8)  # The queue calls it every second.
def _usable(claims: tuple[Claim, ...], head: Node, worker: Node, most: int) -> int:
    def shares(workers: int) -> dict[str, int]:
        return share(claims, [head, *[worker] * workers]).env_runners

    with_all = shares(most)
    return next(count for count in range(most + 1) if shares(count) == with_all)
