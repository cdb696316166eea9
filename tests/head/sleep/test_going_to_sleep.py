"""Going to sleep: undisturbed, killed at any point, refused by Azure, or canceled when needed."""

from __future__ import annotations

import time

import pytest

from rehearsal.azure.resources.scale_set_machines import with_capacity
from tests.head.sleep.conftest import MakeHead
from tests.head.sleep.sleeping_head import SleepingHead
from tests.rehearsal.azure.resources.scale_set_cloud import HEAD, SCALE_SET

pytestmark = pytest.mark.slow

STOP_EXPERIMENTS = "systemctl stop experiments.service"
SAVE = "save"
STOP_RAY = "systemctl stop ray-head.service"
START = "systemctl start --no-block ray-head.service experiments.service"


def test_an_idle_head_saves_deletes_its_workers_and_deallocates_itself(
    make_head: MakeHead,
) -> None:
    head = make_head(workers=3)
    head.run_when_idle_for(31)
    assert head.calls == [STOP_EXPERIMENTS, SAVE, STOP_RAY]
    assert (head.cloud.machines(), head.cloud.capacity) == ({}, 0)
    assert head.is_deallocated
    assert head.cloud.management.asked[-1] == f"POST {HEAD}/deallocate"
    assert head.sleep["going"]


def test_nothing_is_asked_twice_while_azure_deallocates(head: SleepingHead) -> None:
    head.run_when_idle_for(31)
    asked, calls = len(head.cloud.management.asked), head.calls
    head.run()
    assert (len(head.cloud.management.asked), head.calls) == (asked, calls)


def test_a_head_that_is_still_up_long_after_is_woken_and_tries_again(head: SleepingHead) -> None:
    head.run_when_idle_for(31)
    head.change("sleep.json", asked=time.time() - 601)
    head.run()
    assert head.calls[-1] == START
    assert "still up" in head.sleep["problem"]
    assert not head.sleep["going"]


def test_after_the_next_boot_it_is_awake(head: SleepingHead) -> None:
    head.run_when_idle_for(31)
    head.boot("second")
    assert head.sleep is None
    head.run()
    assert not head.sleep["going"]
    assert head.sleep["idle_since"] == pytest.approx(time.time(), abs=30)


@pytest.mark.parametrize("at", [STOP_EXPERIMENTS, STOP_RAY])
def test_a_run_that_is_killed_is_finished_by_the_next(make_head: MakeHead, at: str) -> None:
    head = make_head(workers=1)
    head.machine.write("kills", at.removeprefix("systemctl "))
    head.run()
    head.change("sleep.json", idle_since=time.time() - 3600)
    head.run(expected=-9)
    assert head.sleep["going"]
    assert not head.is_deallocated
    head.run()
    assert head.is_deallocated
    assert head.cloud.machines() == {}


def test_a_run_that_is_killed_as_it_wakes_is_finished_by_the_next(head: SleepingHead) -> None:
    head.machine.write("unsaved", "")
    head.machine.write("kills", START.removeprefix("systemctl "))
    head.run()
    head.change("sleep.json", idle_since=time.time() - 3600)
    head.run(expected=-9)
    head.run()
    assert (head.calls.count(STOP_EXPERIMENTS), head.calls.count(START)) == (1, 2)
    assert not head.sleep["going"]
    assert "save" in head.sleep["problem"]


def test_what_is_submitted_while_the_queue_stops_wakes_it(make_head: MakeHead) -> None:
    head = make_head(workers=1)
    head.experiment("late", "QUEUED", folder=head.root / "submits")
    head.run_when_idle_for(31)
    assert head.calls == [STOP_EXPERIMENTS, START]
    assert len(head.cloud.machines()) == 1
    assert (head.sleep["going"], head.sleep["problem"]) == (False, "")


def test_unsaved_results_keep_it_awake(make_head: MakeHead) -> None:
    head = make_head(workers=1)
    head.machine.write("unsaved", "")
    head.run_when_idle_for(31)
    assert head.calls[-1] == START
    assert len(head.cloud.machines()) == 1
    assert "save" in head.sleep["problem"]
    (head.root / "unsaved").unlink()
    head.change("sleep.json", next_try=time.time() - 1)
    head.run()
    assert head.is_deallocated


def test_a_unit_that_does_not_stop_keeps_it_awake(head: SleepingHead) -> None:
    head.machine.write("fails", "stop ray-head.service")
    head.run_when_idle_for(31)
    assert head.sleep["problem"] == f"{STOP_RAY}: Job failed."
    assert head.calls[-1] == START


def test_pauses_after_refusals_grow_to_a_quarter_of_an_hour(head: SleepingHead) -> None:
    head.fault(forbidden=1000)
    head.run_when_idle_for(31)
    assert head.calls == []  # Nothing is stopped while Azure refuses.
    pauses = []
    for _ in range(6):
        problem, next_try = head.sleep["problem"], head.sleep["next_try"]
        assert "AuthorizationFailed" in problem
        pauses.append(round(next_try - time.time(), -1))
        asked = len(head.cloud.management.asked)
        head.run()
        assert len(head.cloud.management.asked) == asked
        head.change("sleep.json", next_try=time.time() - 1)
        head.queue_sees()
        head.run()
    assert pauses == [60, 120, 240, 480, 900, 900]
    head.fault(forbidden=0)
    head.change("sleep.json", next_try=time.time() - 1)
    head.run()
    assert head.is_deallocated


def test_a_deallocation_that_azure_refuses_wakes_it_until_the_next_try(
    head: SleepingHead,
) -> None:
    head.fault(deallocations_refused=1)
    head.run_when_idle_for(31)
    assert head.calls[-1] == START
    assert head.sleep["problem"].startswith("Conflict: ")
    assert not head.sleep["going"]
    head.change("sleep.json", next_try=time.time() - 1)
    head.run()
    assert head.is_deallocated


def test_a_deallocation_whose_answer_is_lost_is_requested_again_without_waking(
    head: SleepingHead,
) -> None:
    head.fault(lost_answers=1)
    head.run_when_idle_for(31)
    assert head.is_deallocated
    assert START not in head.calls


def test_after_a_failure_ray_that_is_not_yet_up_again_does_not_count_as_use(
    head: SleepingHead,
) -> None:
    head.fault(forbidden=1)
    head.run_when_idle_for(31)
    head.change("sleep.json", next_try=time.time() - 1)
    head.queue_sees(age_s=300)
    head.run()
    assert not head.is_deallocated
    assert head.sleep["problem"]
    head.queue_sees()
    head.run()
    assert head.is_deallocated


@pytest.mark.parametrize("fault", ["changed_between", "lost_answers"])
def test_a_change_that_fails_or_is_lost_is_made_again(make_head: MakeHead, fault: str) -> None:
    head = make_head(workers=2)
    head.fault(**{fault: 1})
    head.run_when_idle_for(31)
    assert head.is_deallocated
    assert head.cloud.machines() == {}


def test_workers_that_the_capacity_does_not_count_are_deleted_by_name(make_head: MakeHead) -> None:
    head = make_head(workers=2)
    head.shorten_waits(BY_NAME_S=0.3)
    with head.cloud.azure.changing() as state:
        state.resources[SCALE_SET] = with_capacity(state.resources[SCALE_SET], 0)
    head.run_when_idle_for(31)
    assert head.cloud.count(f"POST {SCALE_SET}/delete") == 1
    assert head.cloud.machines() == {}
    assert head.is_deallocated


def test_workers_that_azure_does_not_delete_keep_it_awake(make_head: MakeHead) -> None:
    head = make_head(workers=1)
    head.shorten_waits(WORKERS_GONE_S=0.1)
    head.cloud.management.machines.operation_s = 60
    head.run_when_idle_for(31)
    assert not head.is_deallocated
    assert "worker0" in head.sleep["problem"]
    assert head.calls[-1] == START


def test_before_an_eviction_of_the_head_one_change_deletes_the_workers(
    make_head: MakeHead,
) -> None:
    head = make_head(workers=3)
    head.run(module="head.sleep.send_workers_home")
    assert head.cloud.capacity == 0
    assert head.cloud.count("PATCH") == 1
    assert head.calls == []


def test_before_an_eviction_azures_own_rules_keep_their_workers(make_head: MakeHead) -> None:
    head = make_head(workers=3)
    head.set(scaling="cpu")
    head.run(module="head.sleep.send_workers_home")
    assert head.cloud.capacity == 3
