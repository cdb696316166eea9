"""The queue's choice of experiments and their env runners, in any order, on any nodes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from head import room
from head.queue import sharing
from payload.experiment import Cluster, ImpalaSettings, UserError, place
from payload.experiment import Node as PlacedNode
from payload.experiment.placement import needs

ARTICLES = [6, 2, 2, 2, 2]


def nodes(*cpus: int) -> list[Any]:
    return [room.Node(count) for count in cpus]


def claim(name: str, asked: int | None = None, running: bool = False, **more: Any) -> Any:
    claimed = {key: more.pop(key) for key in ("env_runners", "now") if key in more}
    return sharing.Claim(
        name, room.Needs(num_env_runners=asked, **more), running=running, **claimed
    )


def shares(claims: list[Any], *cpus: int) -> dict[str, int]:
    found: dict[str, int] = sharing.share(claims, nodes(*cpus)).env_runners
    return found


# One experiment


@pytest.mark.parametrize(
    ("asked", "cpus", "number"),
    [(None, ARTICLES, 13), (None, [1], 1), (5, ARTICLES, 5), (0, [6, 2], 0), (13, [6], 5)],
)
def test_an_experiment_alone_has_what_it_asks_for_or_what_fits(
    asked: int | None, cpus: list[int], number: int
) -> None:
    assert shares([claim("a", asked)], *cpus) == {"a": number}


@given(
    asked=st.none() | st.integers(0, 12),
    each=st.integers(1, 3),
    learners=st.integers(0, 2),
    evaluating=st.integers(0, 2),
    cpus=st.lists(st.integers(1, 7), min_size=1, max_size=4),
)
def test_an_experiment_alone_has_what_the_payload_finds_room_for(
    asked: int | None, each: int, learners: int, evaluating: int, cpus: list[int]
) -> None:
    settings = ImpalaSettings(
        num_env_runners=asked,
        num_cpus_per_env_runner=each,
        num_learners=learners,
        evaluation_interval=1 if evaluating else None,
        evaluation_num_env_runners=evaluating,
    )
    asks = room.Needs(**vars(needs(settings)))
    found = sharing.share([sharing.Claim("a", asks)], nodes(*cpus)).env_runners
    cluster = Cluster([PlacedNode(count) for count in cpus])
    try:
        expected = {"a": place(settings, cluster, shrink=True)}
    except UserError:
        expected = {}
    if asked == 0:
        # The payload reserves nothing for a driver that samples; two of them need two CPUs.
        assert found in (expected, {})
    else:
        assert found == expected


# Several


def test_experiments_without_a_number_share_evenly() -> None:
    assert shares([claim("a", running=True), claim("b")], 8) == {"a": 3, "b": 3}


def test_what_is_left_over_goes_to_the_first() -> None:
    assert shares([claim("a", running=True), claim("b")], *ARTICLES) == {"a": 6, "b": 6}
    assert shares([claim("a"), claim("b")], 5) == {"a": 2, "b": 1}


def test_a_number_that_is_asked_for_is_not_shared() -> None:
    assert shares([claim("a", running=True), claim("b", 5)], *ARTICLES) == {"a": 7, "b": 5}
    claims = [claim("a", 13, running=True), claim("b")]
    assert shares(claims, *ARTICLES) == {"a": 13, "b": 1}


def test_the_drivers_leave_their_cpus_before_anybody_waits() -> None:
    assert shares([claim("a", running=True), claim("b")], 2) == {"a": 1, "b": 1}


def test_the_third_waits_when_there_is_room_for_two() -> None:
    assert shares([claim("a"), claim("b"), claim("c")], 2) == {"a": 1, "b": 1}


def test_those_behind_one_that_waits_wait_too() -> None:
    large = claim("large", evaluation_env_runners=4)
    assert shares([claim("a", 2, running=True), large, claim("small", 1)], 5) == {"a": 2}


def test_an_experiment_that_lost_its_nodes_continues() -> None:
    claims = [claim("a", 4, running=True), claim("b", running=True)]
    assert shares(claims, 1) == {"a": 1, "b": 1}


def test_one_that_is_alone_loses_no_env_runner_to_its_driver() -> None:
    assert shares([claim("a", running=True, env_runners=2)], 1, 1) == {"a": 2}
    assert shares([claim("a", running=True, env_runners=2)], 1, 1, 1) == {"a": 2}
    assert shares([claim("a", running=True, env_runners=2)], 1) == {"a": 1}
    assert shares([claim("a")], 1, 1) == {"a": 1}


def test_a_search_keeps_what_it_had_at_its_start() -> None:
    search = claim("s", running=True, search=True, env_runners=3)
    assert shares([search, claim("b")], 8) == {"s": 3, "b": 3}
    assert shares([search, claim("b")], 3) == {"s": 3}


def test_a_gpu_is_for_one_experiment_at_a_time() -> None:
    learner: dict[str, Any] = {"gpu_learners": 1, "gpus_per_learner": 1.0}
    claims = [claim("a", **learner, running=True), claim("b", **learner), claim("c")]
    head = [room.Node(8, 1.0)]
    assert list(sharing.share(claims, head).env_runners) == ["a"]
    assert list(sharing.share(claims, [room.Node(8, 2.0)]).env_runners) == ["a", "b", "c"]


# --now


def test_one_that_is_to_train_now_lets_nobody_leave_who_can_make_room() -> None:
    found = sharing.share([claim("b", now=True), claim("a", running=True)], nodes(4))
    assert (found.env_runners, found.requeued) == ({"b": 1, "a": 1}, [])


def test_one_that_is_to_train_now_lets_the_last_leave() -> None:
    learner: dict[str, Any] = {"gpu_learners": 1, "gpus_per_learner": 1.0}
    claims = [
        claim("urgent", now=True, **learner),
        claim("a", running=True, **learner),
        claim("b", running=True, **learner),
    ]
    found = sharing.share(claims, [room.Node(8, 2.0)])
    assert found.requeued == ["b"]
    assert list(found.env_runners) == ["urgent", "a"]


def test_one_that_never_fits_lets_nobody_leave() -> None:
    urgent = claim("urgent", now=True, evaluation_env_runners=9)
    found = sharing.share([urgent, claim("a", running=True)], nodes(4))
    assert (list(found.env_runners), found.requeued) == (["a"], [])


# Anything


def any_claims() -> st.SearchStrategy[list[Any]]:
    asks = st.builds(
        room.Needs,
        num_env_runners=st.none() | st.integers(0, 6),
        cpus_per_env_runner=st.integers(1, 2),
        evaluation_env_runners=st.integers(0, 1),
        cpu_learners=st.integers(0, 2),
        search=st.booleans(),
    )
    one = st.builds(
        sharing.Claim,
        name=st.just(""),
        needs=asks,
        running=st.booleans(),
        env_runners=st.integers(1, 4),
        now=st.booleans(),
    )
    return st.lists(one, max_size=6).map(
        lambda found: [
            sharing.Claim(str(place), c.needs, c.running, c.env_runners, c.now)
            for place, c in enumerate(found)
        ]
    )


CPUS = st.lists(st.integers(1, 8), min_size=1, max_size=4)


@given(any_claims(), CPUS)
def test_those_that_start_come_before_those_that_wait(claims: list[Any], cpus: list[int]) -> None:
    started = shares(claims, *cpus)
    waits = [c.name in started for c in claims if not c.running]
    assert waits == sorted(waits, reverse=True)


@given(any_claims(), CPUS)
def test_nobody_who_trains_leaves_without_being_asked(claims: list[Any], cpus: list[int]) -> None:
    found = sharing.share(claims, nodes(*cpus))
    for one in claims:
        if one.running:
            assert (one.name in found.env_runners) != (one.name in found.requeued)
    if not any(one.now and not one.running for one in claims):
        assert found.requeued == []


@given(any_claims(), CPUS)
def test_what_is_given_out_is_there(claims: list[Any], cpus: list[int]) -> None:
    fresh = [sharing.Claim(c.name, c.needs, False, 0, False) for c in claims]
    found = shares(fresh, *cpus)
    asks = {one.name: one.needs for one in fresh}
    used = sum(
        asks[name].cpu_learners
        + (number + asks[name].evaluation_env_runners) * asks[name].cpus_per_env_runner
        for name, number in found.items()
    )
    assert used <= sum(cpus)


@given(st.integers(1, 6), st.integers(6, 40))
def test_even_shares_differ_by_one_at_most(count: int, cpus: int) -> None:
    found = shares([claim(str(place)) for place in range(count)], cpus)
    assert len(found) == count
    assert max(found.values()) - min(found.values()) <= 1
