"""How many workers the experiments can use: what the queue asks Ray's autoscaler for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from cluster_room import Node
from cluster_settings import ClusterSettings
from sharing import Claim, share


def usable_workers(claims: Sequence[Claim], settings: ClusterSettings) -> int:
    """Returns the fewest workers with which everybody has as much as with all of them.

    Args:
        claims: In the order in which they are served.
    """
    return _usable(tuple(claims), settings.head, settings.worker, settings.max_workers)


@lru_cache(maxsize=8)  # The queue asks every second.
def _usable(claims: tuple[Claim, ...], head: Node, worker: Node, most: int) -> int:
    def shares(workers: int) -> dict[str, int]:
        return share(claims, [head, *[worker] * workers]).env_runners

    all_have = shares(most)
    return next(count for count in range(most + 1) if shares(count) == all_have)
