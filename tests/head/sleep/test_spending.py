"""The cluster's cost so far; the prices are 2 (head), 0.5 (worker) and 0.25 (always)."""

from __future__ import annotations

import time

import pytest

from tests.head.sleep.sleeping_head import HOUR, SleepingHead

pytestmark = pytest.mark.slow


def spent(head: SleepingHead) -> float:
    head.run()
    return float(head.ask("status")["cost"]["so_far"])


def ago(head: SleepingHead, hours: float, boot: str = "first", so_far: float = 10) -> None:
    """Dates the last run back by some hours."""
    head.run()
    head.change("cost.json", time=time.time() - hours * HOUR, boot=boot, so_far=so_far)


def dollars(value: float) -> object:
    return pytest.approx(value, abs=0.02)


def test_the_first_run_counts_since_the_boot(head: SleepingHead) -> None:
    assert spent(head) == dollars(2.25)


def test_status_says_the_cost_by_the_hour_and_whose_prices(head: SleepingHead) -> None:
    head.queue_sees(workers=2)
    head.run()
    cost = head.ask("status")["cost"]
    assert (cost["per_hour"], cost["estimate"]) == (3.25, "eastus, 2026-01-31")


def test_what_is_stored_is_spent_too(head: SleepingHead) -> None:
    head.write("stored.json", {"everything": 100 * 2**30, "runs": {}, "time": time.time()})
    ago(head, 1)
    assert spent(head) == dollars(10 + 2.25 + 100 * 0.01)
    assert head.ask("status")["cost"]["per_hour"] == pytest.approx(3.25)


def test_before_the_first_run_there_is_none(head: SleepingHead) -> None:
    answer = head.ask("status")
    assert (answer["sleep"], answer["cost"], answer["workers"]) == (None, None, None)


def test_workers_that_are_coming_are_billed(head: SleepingHead) -> None:
    workers = {"time": time.time(), "there": ["a"], "coming": ["b", "c"], "leaving": ["d"]}
    head.write("cluster-workers.json", workers)
    ago(head, 1)
    assert spent(head) == dollars(10 + 2.25 + 3 * 0.5)
    assert head.ask("status")["workers"] == workers


def test_workers_of_an_earlier_boot_are_not(head: SleepingHead) -> None:
    head.write(
        "cluster-workers.json", {"time": time.time() - 2 * HOUR, "there": ["a"], "coming": []}
    )
    ago(head, 1)
    assert spent(head) == dollars(10 + 2.25)


def test_a_long_run_is_billed_whole(head: SleepingHead) -> None:
    head.set_up_for(5 * HOUR)
    ago(head, 4)
    assert spent(head) == dollars(10 + 4 * 2.25)


def test_asleep_only_what_stays_is_billed(head: SleepingHead) -> None:
    head.set_up_for(HOUR)
    ago(head, 11, boot="earlier")
    assert spent(head) == dollars(10 + 10 * 0.25 + 2.25)


def test_a_reboot_is_billed_as_if_it_had_been_up(head: SleepingHead) -> None:
    head.set_up_for(30)
    ago(head, 4 / 60, boot="earlier")
    assert spent(head) == pytest.approx(10 + 4 / 60 * 2.25, abs=0.002)


def test_a_clock_that_is_set_back_costs_nothing(head: SleepingHead) -> None:
    ago(head, -3)
    assert spent(head) == dollars(10)


def test_the_cost_of_a_cluster_that_azure_scales_is_counted_too(head: SleepingHead) -> None:
    head.set(scaling="cpu")
    assert spent(head) == dollars(2.25)
