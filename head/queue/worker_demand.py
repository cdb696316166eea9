"""How many workers the experiments can use: the queue requests them from Ray's autoscaler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from ..cluster_settings import ClusterSettings
from ..room import Node
from .cluster_state import RayNode
from .sharing import Claim, share


def usable_workers(
    claims: Sequence[Claim], nodes: Sequence[RayNode], settings: ClusterSettings
) -> int:
    """Returns the fewest workers with which each experiment has as much as with all of them.

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


@lru_cache(maxsize=8)  # The queue asks every second.
def _usable(claims: tuple[Claim, ...], head: Node, worker: Node, most: int) -> int:
    def shares(workers: int) -> dict[str, int]:
        return share(claims, [head, *[worker] * workers]).env_runners

    with_all = shares(most)
    return next(count for count in range(most + 1) if shares(count) == with_all)
