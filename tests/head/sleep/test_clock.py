"""A clock that is set changes neither how long the head was idle nor what it has cost."""

from __future__ import annotations

import time

import pytest

from tests.head.sleep.sleeping_head import HOUR, SleepingHead

pytestmark = pytest.mark.slow
SET = pytest.mark.parametrize("ahead_s", [HOUR, -HOUR])


@SET
def test_an_idle_head_does_not_sleep_earlier_or_later(head: SleepingHead, ahead_s: float) -> None:
    head.run_when_idle_for(29)
    head.set_clock(ahead_s)
    head.queue_sees(age_s=-ahead_s)
    head.run()
    assert head.calls == []
    idle_s = time.time() + ahead_s - head.sleep["idle_since"]
    assert idle_s == pytest.approx(29 * 60, abs=60)
    head.change("sleep.json", idle_since=head.sleep["idle_since"] - 120)
    head.run()
    assert head.is_deallocated


@SET
def test_the_budget_is_not_spent_by_it(head: SleepingHead, ahead_s: float) -> None:
    head.set(budget=4)
    head.run()
    before = head.read("cost.json")["so_far"]
    head.set_clock(ahead_s)
    head.queue_sees(age_s=-ahead_s)
    head.run()
    assert head.read("cost.json")["so_far"] == pytest.approx(before, abs=0.05)
    assert head.calls == []


@SET
def test_a_request_to_sleep_stays_valid(head: SleepingHead, ahead_s: float) -> None:
    head.experiment("pong", "TRAINING")
    head.ask("sleep", "--now")
    head.set_clock(ahead_s)
    head.run()
    assert head.is_deallocated


def test_a_view_of_ray_from_the_future_counts_as_use(head: SleepingHead) -> None:
    head.queue_sees(age_s=-HOUR)
    head.run()
    assert head.sleep["idle_since"] is None


@SET
def test_a_pause_after_a_failure_is_as_long(head: SleepingHead, ahead_s: float) -> None:
    head.fault(forbidden=1)
    head.run_when_idle_for(31)
    pause = head.sleep["next_try"] - time.time()
    head.set_clock(ahead_s)
    head.queue_sees(age_s=-ahead_s)
    head.run()
    assert head.sleep["next_try"] - time.time() - ahead_s == pytest.approx(pause, abs=30)
