"""How many workers the queue asks for."""

from __future__ import annotations

from typing import Any

import pytest

from head.cluster_settings import ClusterSettings, Prices
from head.queue.cluster_state import RayNode
from head.queue.sharing import usable_workers
from head.room import Node
from tests.head.queue.test_sharing import claim


def asked_for(
    *claims: Any, head: int = 4, most: int = 4, gpus: float = 0.0, nodes: tuple[RayNode, ...] = ()
) -> int:
    settings = ClusterSettings(
        scaling="demand",
        min_workers=0,
        max_workers=most,
        sleep_after_minutes=0,
        max_hours=0,
        budget=0,
        endpoint="",
        scale_set="",
        head_vm="",
        head=Node(head, gpus),
        worker=Node(2),
        prices=Prices(0, 0, 0, 0, ""),
    )
    return usable_workers(claims, nodes, settings)


def test_nobody_asks_for_workers_without_an_experiment() -> None:
    assert asked_for() == 0


def test_an_experiment_without_a_number_asks_for_all() -> None:
    assert asked_for(claim("a")) == 4


@pytest.mark.parametrize(("number", "workers"), [(0, 0), (3, 0), (4, 1), (5, 1), (6, 2), (40, 4)])
def test_an_experiment_with_a_number_asks_for_what_it_lacks_on_the_head(
    number: int, workers: int
) -> None:
    assert asked_for(claim("a", number)) == workers


def test_experiments_add_up() -> None:
    assert asked_for(claim("a", 3, running=True, env_runners=3), claim("b", 3)) > asked_for(
        claim("a", 3)
    )


def test_no_more_workers_are_asked_for_than_there_may_be() -> None:
    assert asked_for(*[claim(str(one)) for one in range(200)], most=3) == 3


def test_one_that_fits_nowhere_asks_for_nothing() -> None:
    assert asked_for(claim("a", gpu_learners=1, gpus_per_learner=1.0)) == 0


def test_what_ray_has_of_a_machine_counts_more_than_its_size() -> None:
    head, worker = RayNode("", "", "head", 1, 0), RayNode("", "", "worker", 1, 0)
    alone, both = (asked_for(claim("a", 4), nodes=n) for n in ((head,), (head, worker)))
    assert asked_for(claim("a", 4)) < alone < both


def test_one_that_has_grown_asks_for_as_many_as_before() -> None:
    nodes = tuple(RayNode(role, "", role, 1, 0) for role in ("head", "worker"))
    before = asked_for(claim("a", running=True, env_runners=1), nodes=nodes)
    grown = asked_for(claim("a", running=True, env_runners=4), nodes=nodes)
    assert (before, grown) == (4, 4)
