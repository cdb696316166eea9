"""The cost by experiment and person; the prices are 2 (head), 0.5 (worker) and 0.25 (always)."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from head.queue.record import Record
from head.sleep.shares import Interval, Share, divided, held_cpus
from tests.head.sleep.sleeping_head import HOUR, SleepingHead

HELD = {"job": "j", "started": 0.0}
INTERVAL = Interval(1000.0, 1060.0, dollars=6.0, cpus=10)


def record(name: str = "a", state: str = "TRAINING", **values: Any) -> Record:
    given = {"key": f"{name}-key", "submitted_by": "ann@a", "num_env_runners": 4, **HELD, **values}
    return Record(name, state, **given)


def dollars(*records: Record, interval: Interval = INTERVAL, before: Any = ()) -> list[float]:
    return [round(share.dollars, 4) for share in divided(list(before), interval, records)]


def test_machines_are_divided_by_the_cpus_that_are_held() -> None:
    # Four env runners and the driver of each, and of ten CPUs none is idle.
    assert dollars(record("a"), record("b")) == [3.0, 3.0]
    assert dollars(record("a", num_env_runners=1), record("b")) == [1.2, 3.0]


@pytest.mark.parametrize(
    ("needs", "cpus"),
    [
        ({}, 5),
        ({"cpu_learners": 1}, 5),  # The driver shares the learner's.
        ({"cpus_per_env_runner": 2, "evaluation_env_runners": 1}, 11),
        ({"unknown": 1}, 0),
    ],
)
def test_env_runners_learners_and_the_driver_hold_cpus(needs: dict[str, int], cpus: int) -> None:
    assert held_cpus(record(needs=needs)) == cpus


def test_a_script_holds_those_that_it_asks_for() -> None:
    needs = {"num_env_runners": 0, "cpu_learners": 7}
    assert held_cpus(record(script=True, num_env_runners=0, needs=needs)) == 8


def test_only_the_time_that_it_holds_them_counts() -> None:
    assert dollars(record(started=1030.0)) == [1.5]
    assert dollars(record(state="FINISHED", ended=1015.0)) == [0.75]
    assert dollars(record(state="FINISHED", ended=999.0)) == []


def test_one_that_waits_or_pauses_holds_none() -> None:
    assert dollars(record(state="QUEUED"), record("b", "STARTING", job="")) == []


def test_nobody_pays_for_more_than_there_was() -> None:
    small = Interval(1000.0, 1060.0, dollars=6.0, cpus=5)  # A worker has gone.
    assert dollars(record("a"), record("b"), interval=small) == [3.0, 3.0]
    assert dollars(interval=Interval(1000.0, 1000.0, 0.0, 0)) == []


def test_shares_add_up_by_experiment_and_person() -> None:
    before = [{"key": "a-key", "name": "a", "submitted_by": "ann@a", "dollars": 1, "cpu_hours": 2}]
    shares = divided([*before, {"key": "damaged"}, None], INTERVAL, [record()])
    assert shares == [Share("a-key", "a", "ann@a", 4.0, 2 + 5 * 60 / HOUR)]
    other = divided(before, INTERVAL, [record(submitted_by="bob@b")])
    assert [(share.submitted_by, share.dollars) for share in other] == [
        ("ann@a", 1),
        ("bob@b", 3.0),
    ]
    assert divided("damaged", INTERVAL, []) == []


@pytest.mark.slow
def test_each_run_divides_the_time_since_the_last(head: SleepingHead) -> None:
    head.run()
    folder = head.home / "experiments/pong"
    folder.mkdir()
    state: dict[str, Any] = {"name": "pong", "key": "pong-key", "state": "TRAINING", "job": "j"}
    state |= {"started": time.time() - HOUR / 2, "num_env_runners": 1, "submitted_by": "ann@a"}
    (folder / "state.json").write_text(json.dumps({**state, "needs": {}}))
    # An hour ago: it holds both CPUs of the head since half an hour, at 2.25 dollars an hour.
    head.change("cost.json", time=time.time() - HOUR, boot="first", so_far=10)
    head.run()
    answer = head.ask("status")
    (share,) = answer["cost"]["shares"]
    assert share["dollars"] == pytest.approx(2.25 / 2, abs=0.02)
    assert share["cpu_hours"] == pytest.approx(1.0, abs=0.02)
    assert answer["experiments"][0]["cost"] == pytest.approx(share["dollars"], abs=1e-4)
    assert answer["cost"]["so_far"] == pytest.approx(12.25, abs=0.02)
