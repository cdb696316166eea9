"""How many workers the experiments can use: what the queue asks Ray's autoscaler for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from cluster_room import Node
from cluster_settings import ClusterSettings
from sharing import Claim, share


def usable_workers(
    claims: Sequence[Claim], nodes: Sequence[Mapping[str, Any]], settings: ClusterSettings
) -> int:
    """Returns the fewest workers with which everybody has as much as with all of them.

    Args:
        claims: In the order in which they are served.
        nodes: Those that Ray has: a machine may give it other CPUs than its size says.
    """
    head, worker = _node(nodes, "head", settings.head), _node(nodes, "worker", settings.worker)
    return _usable(tuple(map(_as_at_its_start, claims)), head, worker, settings.max_workers)


def _as_at_its_start(claim: Claim) -> Claim:
    # One that has grown would keep its env runners on fewer nodes, and let the driver's CPU go.
    return claim if claim.needs.search else replace(claim, env_runners=0)


def _node(nodes: Sequence[Mapping[str, Any]], role: str, otherwise: Node) -> Node:
    found = [Node(node["cpus"], node["gpus"]) for node in nodes if node["role"] == role]
    return min(found, key=lambda node: node.cpus, default=otherwise)


@lru_cache(maxsize=8)  # The queue asks every second.
def _usable(claims: tuple[Claim, ...], head: Node, worker: Node, most: int) -> int:
    def shares(workers: int) -> dict[str, int]:
        return share(claims, [head, *[worker] * workers]).env_runners

    all_have = shares(most)
    return next(count for count in range(most + 1) if shares(count) == all_have)
