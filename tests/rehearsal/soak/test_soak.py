"""What a soak lets happen, and what it calls a violation."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from rehearsal.soak.faults import Fault, draw
from rehearsal.soak.invariants import faults_of
from rehearsal.soak.run_soak import all_faults
from rehearsal.soak.vital_signs import VitalSigns, growing

FAULTS = all_faults()


def drawn(seed: int) -> list[Fault | None]:
    random = Random(seed)
    return [draw(FAULTS, (), random) for _ in range(60)]


def test_the_same_seed_lets_the_same_faults_happen() -> None:
    assert drawn(7) == drawn(7)
    assert drawn(7) != drawn(8)


def test_every_fault_has_its_own_name() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)


def test_what_is_broken_is_not_broken_again() -> None:
    broken = {"head", "Blob"}
    random = Random(1)
    for _ in range(200):
        fault = draw(FAULTS, broken, random)
        assert fault is not None
        assert fault.breaks not in broken


def test_nothing_happens_while_everything_is_broken() -> None:
    assert draw(FAULTS, {fault.breaks for fault in FAULTS}, Random(1)) is None


def test_points_at_an_even_pace_are_complete() -> None:
    assert faults_of([(512 * n, n) for n in range(1, 61)]) == []


def test_a_resumed_run_may_count_an_iteration_again() -> None:
    points = [(512 * n, n) for n in range(1, 31)]
    assert faults_of([*points, *((512 * n + 200, n) for n in range(30, 61))]) == []


def test_a_point_that_is_there_twice_is_a_violation() -> None:
    points = [(512 * n, n) for n in range(1, 31)]
    assert faults_of([*points, points[-1]]) == ["1 points twice"]


def test_an_axis_that_goes_back_is_a_violation() -> None:
    assert faults_of([(512, 1), (1024, 2), (1536, 3), (1000, 3)]) == ["the axis goes back"]


def test_missing_points_are_a_violation() -> None:
    points = [(512 * n, n) for n in range(1, 61) if not 20 <= n < 30]
    assert faults_of(points) == ["a gap of 5,632 steps"]


def test_a_minute_without_env_runners_is_no_gap() -> None:
    waiting = [(512 * 5, n) for n in range(6, 66)]
    points = [*((512 * n, n) for n in range(1, 6)), *waiting]
    later = [(512 * 5 + 512 * n + 512 * (n > 20), 65 + n) for n in range(1, 31)]
    assert faults_of([*points, *later]) == []


def test_a_run_without_points_is_a_violation() -> None:
    assert faults_of([]) == ["0 points"]


def signs(memory_per_h: float) -> list[VitalSigns]:
    return [VitalSigns(60.0 * n, 2000 + memory_per_h * n / 60, 500, 9000) for n in range(60)]


def test_memory_that_grows_is_a_violation_and_a_warm_up_is_none() -> None:
    assert growing(signs(memory_per_h=1000)) == ["memory_mib: +1000 in an hour"]
    warm_up = [VitalSigns(0.0, 500, 100, 9000), *signs(memory_per_h=0)]
    assert growing(warm_up) == []


def test_a_disk_that_a_fault_fills_for_a_minute_has_not_grown() -> None:
    late = [
        replace(sign, disk_mib=125_000) if n in (55, 56) else sign
        for n, sign in enumerate(signs(memory_per_h=0))
    ]
    assert growing(late) == []
