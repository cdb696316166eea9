"""The queue's rules for jobs that fail, get lost or are stopped, on a simulated cluster."""

from __future__ import annotations

import errno
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from ray.job_submission import JobStatus

import head.cluster_settings
from infra.config.stack_settings import StackSettings
from infra.stack.head_software import cluster_settings
from tests.head.queue.played_queue import Played
from tests.infra.declared_stack import REQUIRED

pytestmark = pytest.mark.slow


def test_the_progress_of_a_start_is_not_the_reason_for_its_end(played: Played) -> None:
    played.submit("a")
    played.step()
    status = {"state": "STARTING", "reason": "pulling image: 1 of 2 machines have it"}
    (played.store.folder("a") / "status.json").write_text(json.dumps(status))
    assert played.ends("a", JobStatus.FAILED, 1).reason == "the last line"


def test_one_that_fails_is_tried_again_later_and_keeps_its_place(played: Played) -> None:
    for name in ("a", "b", "c"):
        played.submit(name)
    played.step()
    failed = played.ends("a", JobStatus.FAILED, 1)
    assert (failed.state, failed.reason) == ("STARTING", "the last line")
    played.step()
    assert played.cluster.started == [("a", 1), ("b", 1)]
    played.store.change(failed, not_before=1.0)
    played.step()
    assert played.cluster.started == [("a", 1), ("b", 1), ("a", 1)]
    assert played.store.get("a").attempts == 2


def test_one_that_fails_ten_times_an_hour_has_failed(played: Played) -> None:
    played.submit("a")
    for _ in range(10):
        played.step()
        failed = played.ends("a", JobStatus.FAILED, 1)
        played.store.change(failed, not_before=1.0)
        played.cluster.listed.clear()
    played.step()
    record = played.store.get("a")
    assert (record.state, record.attempts) == ("FAILED", 10)
    assert record.reason == "failed 10 times within an hour; the last line"


@pytest.mark.parametrize(("gains", "state"), [(0, "FAILED"), (1000, "STARTING")])
def test_one_that_fails_ten_times_without_getting_further_has_failed(
    played: Played, gains: int, state: str
) -> None:
    played.submit("a")
    for number in range(12):
        status = {"state": "FAILED", "reason": "evaluation", "env_steps": 5000 + number * gains}
        played.step()
        if not played.store.get("a").live:
            break
        (played.store.folder("a") / "status.json").write_text(json.dumps(status))
        failed = played.ends("a", JobStatus.FAILED, 1)
        long_ago = [at - 7200 for at in failed.failures]
        played.store.change(failed, not_before=1.0, failures=long_ago)
        played.cluster.listed.clear()
    record = played.store.get("a")
    assert record.state == state
    if state == "FAILED":
        assert record.reason == "failed 10 times without getting further; evaluation"


def test_one_that_is_refused_has_failed(played: Played) -> None:
    played.submit("a")
    played.step()
    assert played.ends("a", JobStatus.FAILED, 2).state == "FAILED"


def test_a_script_waits_for_others_without_a_limit_and_for_machines_with_one(
    played: Played,
) -> None:
    played.submit("a")
    waits: dict[str, Any] = {"script": True, "machines_timeout_s": 0.001}
    played.submit("fits", needs={"num_env_runners": 0, "cpu_learners": 1}, **waits)
    for _ in range(3):
        played.step()
    assert played.store.get("fits").reason == "waiting for CPUs or GPUs in use by a"
    played.store.stop("fits")
    played.submit("large", needs={"num_env_runners": 0, "cpu_learners": 2}, **waits)
    for _ in range(3):
        played.step()
    record = played.store.get("large")
    assert (record.state, record.reason) == (
        "FAILED",
        "cluster_coordination_timeout_seconds: no machines for it within 0.001 s",
    )


def test_a_script_resumed_after_its_machines_did_not_come_waits_again(played: Played) -> None:
    needs = {"num_env_runners": 0, "cpu_learners": 2}
    played.submit("a", needs=needs, script=True, machines_timeout_s=0.2)
    until = time.monotonic() + 10
    while played.store.get("a").state == "QUEUED" and time.monotonic() < until:
        played.step()
    played.store.resume("a")
    played.step()
    assert played.store.get("a").state == "QUEUED"


@pytest.mark.parametrize("state", ["FINISHED", "FAILED", "KILLED"])
def test_a_script_that_had_ended_when_ray_was_lost_does_not_start_again(
    played: Played, state: str
) -> None:
    played.submit("a", needs={"num_env_runners": 0}, script=True)
    played.step()
    status = {"state": state, "reason": "exit code 3"}
    (played.store.folder("a") / "status.json").write_text(json.dumps(status))
    played.step()
    played.cluster.listed.clear()
    played.step()
    record = played.store.get("a")
    # One that was killed with the head starts again.
    ended = (state, "exit code 3", 1)
    expected = ("STARTING", "", 2) if state == "KILLED" else ended
    assert (record.state, record.reason, record.attempts) == expected
    if state != "FINISHED":
        played.store.resume("a")
        played.step()
        assert played.store.get("a").state == "STARTING"


def test_a_training_that_had_finished_when_it_was_told_to_stop_does_not_start_again(
    played: Played,
) -> None:
    played.submit("a")
    played.step()
    status = {"state": "FINISHED", "reason": "limit of 60 iterations reached"}
    (played.store.folder("a") / "status.json").write_text(json.dumps(status))
    played.cluster.becomes(played.store.get("a").job, JobStatus.STOPPED)
    played.step(closing=True)
    played.step()
    record = played.store.get("a")
    assert (record.state, record.reason) == ("FINISHED", "limit of 60 iterations reached")


def test_a_job_that_ray_has_lost_is_started_again_under_its_id(played: Played) -> None:
    played.submit("a")
    played.step()
    played.step()
    job = played.store.get("a").job
    played.cluster.listed.clear()
    played.step()
    assert played.cluster.started == [("a", 1), ("a", 1)]
    assert played.store.get("a").job == job


def test_a_job_that_no_experiment_has_is_stopped(played: Played) -> None:
    played.cluster.becomes("stray", JobStatus.RUNNING)
    played.step()
    assert played.cluster.stopped == ["stray"]


def test_those_of_a_queue_that_ends_continue_with_the_next(played: Played) -> None:
    played.submit("a")
    played.step()
    assert played.step(closing=True)
    played.cluster.becomes(played.store.get("a").job, JobStatus.FAILED, 143)
    assert not played.step(closing=True)
    record = played.store.get("a")
    assert (record.state, record.job, record.not_before) == ("STARTING", "", 0.0)


def test_one_that_is_to_train_now_lets_the_other_wait_right_behind_it(played: Played) -> None:
    played.submit("a", needs={"evaluation_env_runners": 1})
    played.step()
    played.submit("later")
    played.submit("urgent", needs={"evaluation_env_runners": 1}, now=True)
    played.step()
    played.step()
    assert played.cluster.stopped == [played.store.get("a").job]
    assert played.ends("a", JobStatus.FAILED, 143).state == "QUEUED"
    played.step()
    assert played.cluster.started == [("a", 1), ("urgent", 1)]
    assert [record.name for record in played.store.records()] == ["urgent", "a", "later"]


def test_shares_change_when_nodes_come_and_when_experiments_end(played: Played) -> None:
    def told(name: str) -> str:
        path: Path = played.store.folder(name) / "env_runners"
        return path.read_text()

    played.submit("a")
    played.submit("b")
    played.step()
    played.cluster.cpus = 8
    played.step()
    assert (told("a"), told("b")) == ("3", "3")
    played.ends("a", JobStatus.SUCCEEDED)
    played.step()
    assert played.store.get("a").state == "FINISHED"
    assert told("b") == "7"


def test_workers_are_asked_for_while_an_experiment_can_use_them(
    played: Played, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    settings = StackSettings.model_validate({**REQUIRED, "scaling": "demand", "maxWorkers": 3})
    file = tmp_path / "cluster-settings.json"
    file.write_text(cluster_settings(settings, "set", "vm").to_json())
    monkeypatch.setattr(head.cluster_settings, "CLUSTER_SETTINGS", file)
    played.step()
    assert played.cluster.workers == []
    played.submit("a")
    for _ in range(3):
        played.step()
    assert played.cluster.workers == [3]
    played.ends("a", JobStatus.SUCCEEDED)
    played.step()
    assert played.cluster.workers == [3, 0]


# What may pass


def test_what_may_pass_is_tried_again_with_growing_pauses_and_ends_after_a_day(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_000_000.0
    monkeypatch.setattr(time, "time", lambda: now)
    played.submit("a")
    pauses = []
    while True:
        played.step()
        now += 5.0
        record = played.ends("a", JobStatus.FAILED, os.EX_TEMPFAIL)
        played.cluster.listed.clear()
        if record.state != "STARTING":
            break
        pauses.append(record.not_before - now)
        now = record.not_before
    assert pauses[:8] == [15, 30, 60, 120, 240, 480, 900, 900]
    assert sum(pauses) > 24 * 3600
    assert (record.state, record.reason) == ("FAILED", "tried for 24 h; the last line")


def test_an_hour_of_training_resets_the_retries(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_000_000.0
    monkeypatch.setattr(time, "time", lambda: now)
    played.submit("a")
    for _ in range(3):
        played.step()
        status = {"state": "TRAINING", "reason": ""}
        (played.store.folder("a") / "status.json").write_text(json.dumps(status))
        played.step()
        now += 20 * 3600
        record = played.ends("a", JobStatus.FAILED, os.EX_TEMPFAIL)
        assert (record.state, record.not_before - now) == ("STARTING", 15)
        played.cluster.listed.clear()
        now = record.not_before


def test_transient_errors_before_a_long_training_do_not_count(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_000_000.0
    monkeypatch.setattr(time, "time", lambda: now)
    played.cluster.start_code = os.EX_TEMPFAIL
    played.submit("a")
    played.step()
    played.step()
    now, played.cluster.start_code = played.store.get("a").not_before, 0
    played.step()
    now += 5 * 24 * 3600
    played.cluster.becomes(played.store.get("a").job, JobStatus.STOPPED)
    played.step(closing=True)
    played.cluster.start_code = os.EX_TEMPFAIL
    played.step()
    played.step()
    record = played.store.get("a")
    assert (record.state, record.away, record.away_since) == ("STARTING", 1, now)


def test_an_experiment_that_fails_is_not_waited_for_as_after_a_transient_error(
    played: Played,
) -> None:
    played.submit("a")
    played.step()
    record = played.ends("a", JobStatus.FAILED, os.EX_TEMPFAIL)
    assert record.away == 1
    played.store.change(record, not_before=1.0)
    played.cluster.listed.clear()
    played.step()
    record = played.ends("a", JobStatus.FAILED, 1)
    assert (record.away, record.away_since) == (0, 0)


def test_an_experiment_that_waits_for_long_lets_the_next_one_train_and_keeps_its_turn(
    played: Played,
) -> None:
    for name in ("a", "b", "c"):
        played.submit(name)
    for tries in range(1, 5):
        played.step()
        assert ("c", 1) not in played.cluster.started
        record = played.ends("a", JobStatus.FAILED, os.EX_TEMPFAIL)
        assert record.away == tries
        if tries < 4:
            played.store.change(record, not_before=1.0)
    played.step()
    assert played.cluster.started[-1] == ("c", 1)
    played.store.change(played.store.get("a"), not_before=1.0)
    played.step()
    assert played.store.get("a").reason == "waiting for CPUs or GPUs in use by b, c"
    played.ends("b", JobStatus.SUCCEEDED)
    assert played.cluster.started[-1] == ("a", 1)


def test_a_job_that_ray_could_not_run_is_tried_again_and_says_why(played: Played) -> None:
    played.submit("a")
    played.step()
    job = played.store.get("a").job
    played.cluster.becomes(job, JobStatus.FAILED)
    played.cluster.listed[job].message = "The runtime environment\ncould not be set up"
    played.step()
    record = played.store.get("a")
    assert (record.state, record.away, record.failures) == ("STARTING", 1, [])
    assert record.reason == "The runtime environment could not be set up"


@pytest.mark.parametrize(("code", "state"), [(75, "STARTING"), (1, "STARTING"), (2, "FAILED")])
def test_a_start_that_cannot_be_submitted_ends_as_its_exit_code_says(
    played: Played, code: int, state: str
) -> None:
    played.cluster.start_code = code
    played.submit("a")
    played.step()
    played.step()
    record = played.store.get("a")
    assert (record.state, record.away, len(record.failures)) == (state, code == 75, code == 1)


def test_a_program_that_cannot_be_started_is_tried_again(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    played.submit("a")

    def start(*_: object) -> None:
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(played.cluster, "start", start)
    played.step()
    record = played.store.get("a")
    assert (record.state, record.away) == ("STARTING", 1)
    assert "Resource temporarily unavailable" in record.reason


def test_submitting_again_ends_the_wait(played: Played) -> None:
    played.submit("a")
    played.step()
    played.ends("a", JobStatus.FAILED, os.EX_TEMPFAIL)
    played.submit("a")
    record = played.store.get("a")
    assert (record.not_before, record.away, record.away_since, record.reason) == (0, 0, 0, "")


# What does not count as a failure


def test_making_room_and_losing_ray_do_not_count_as_failures(played: Played) -> None:
    played.submit("a", needs={"evaluation_env_runners": 1})
    for number in range(12):
        played.step()
        played.submit(f"urgent-{number}", needs={"evaluation_env_runners": 1}, now=True)
        played.step()
        assert played.ends("a", JobStatus.FAILED, 143).state == "QUEUED"
        played.step()
        played.ends(f"urgent-{number}", JobStatus.SUCCEEDED)
    for _ in range(12):
        played.step()
        played.cluster.listed.clear()
    played.step()
    record = played.store.get("a")
    assert (record.state, record.failures) == ("STARTING", [])
    assert record.attempts > 24


# A start that hangs


@pytest.mark.parametrize("submitted", [False, True])
def test_a_start_that_says_nothing_is_stopped_and_tried_again(
    played: Played, monkeypatch: pytest.MonkeyPatch, submitted: bool
) -> None:
    played.cluster.start_code = None if not submitted else 0
    played.submit("a")
    played.step()
    later = time.time() + 76 * 60
    monkeypatch.setattr(time, "time", lambda: later)
    (played.store.folder("a") / "output.log").write_text("pulling\n")
    os.utime(played.store.folder("a") / "output.log", (later - 60, later - 60))
    played.queue.step(closing=False)
    assert played.store.get("a").wish == ""
    os.utime(played.store.folder("a") / "output.log", (0, 0))
    played.queue.step(closing=False)
    assert played.store.get("a").wish == "retry"
    played.step()
    if submitted:
        job = played.store.get("a").job
        assert played.cluster.stopped == [job]
        played.cluster.becomes(job, JobStatus.STOPPED)
        played.step()
    record = played.store.get("a")
    assert (record.state, record.wish, record.job, record.away) == ("STARTING", "", "", 1)
    assert record.reason == "its start wrote nothing for 75 min; last: pulling"


# Replacements


def test_the_replacement_of_a_stopped_experiment_is_placed_by_the_next_queue(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    played.submit("a")
    played.step()
    played.submit("a", replaces=True, digest="other")
    played.step()

    def killed(_: str) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as dying:
        dying.setattr(played.store, "place_next", killed)
        with pytest.raises(KeyboardInterrupt):
            played.ends("a", JobStatus.FAILED, 143)
    assert played.store.get("a").state == "STOPPED"
    played.step()
    record = played.store.get("a")
    assert (record.digest, record.state) == ("other", "STARTING")


def test_a_removal_that_is_killed_does_not_bring_the_experiment_back(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    played.submit("a")
    played.store.stop("a")
    with monkeypatch.context() as killed:
        killed.setattr("head.queue.store.shutil.rmtree", lambda *_, **__: None)
        played.store.remove("a")
    played.step()
    assert played.store.records() == []


def test_stopping_an_experiment_stops_its_replacement_too(played: Played) -> None:
    played.submit("a")
    played.step()
    played.submit("a", replaces=True, digest="other")
    played.store.stop("a")
    played.step()
    record = played.ends("a", JobStatus.FAILED, 143)
    played.step()
    assert (record.state, played.store.get("a").digest) == ("STOPPED", "a")
    assert [path.name for path in played.store.root.glob(".*-a")] == []
