"""The queue tells each end of an experiment once, whichever it is, and never waits for that."""

from __future__ import annotations

import json
import os
import shlex
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from ray.job_submission import JobStatus

from head import sleep_record
from head.machine import present_moment
from head.queue import plan
from head.queue.notices import Notices
from head.queue.queue import Queue
from head.sleep_record import SleepRecord
from tests.head.queue.played_queue import Played
from tests.receiver import PATH, own_address, receiving

pytestmark = pytest.mark.slow

TELL = 'cat >> told; echo "$VOLLEY_STATE" >> states'


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder below which the processes that tell an end find the machine's files."""
    (tmp_path / "proc").symlink_to("/proc")
    (tmp_path / "var/lib/volley/.secrets").mkdir(parents=True)
    (tmp_path / "run/volley").mkdir(parents=True)
    monkeypatch.setenv("VOLLEY_ROOT", str(tmp_path))
    monkeypatch.setattr(plan, "SECRETS", tmp_path / "var/lib/volley/.secrets")
    monkeypatch.setattr(sleep_record, "SLEEP", tmp_path / "run/volley/sleep.json")
    return tmp_path


@pytest.fixture
def played(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Played]:
    played = Played(root, monkeypatch)
    yield played
    wait_for_processes(played)
    played.end()


def wait_for_processes(played: Played) -> None:
    notices: Notices | None = played.queue._notices
    while notices is not None:
        for telling in notices._telling.values():
            telling.process.wait(timeout=60)
        notices = getattr(notices, "_before", None)


def tell(played: Played) -> None:
    """Lets the queue start the processes, waits for them, and lets it look again."""
    played.step()
    wait_for_processes(played)
    played.step()
    wait_for_processes(played)


def restart(played: Played) -> None:
    """Replaces the queue by one that knows nothing of the processes of the first."""
    played.end()
    before = played.queue._notices
    played.queue = Queue(played.store, played.cluster)  # type: ignore[arg-type]
    played.queue._notices._before = before  # type: ignore[attr-defined]


def states(played: Played, name: str = "a") -> list[str]:
    file = played.store.folder(name) / "states"
    return file.read_text().split() if file.exists() else []


def finish(played: Played) -> None:
    played.ends("a", JobStatus.SUCCEEDED)


def refuse(played: Played) -> None:
    played.ends("a", JobStatus.FAILED, 2)


def stop(played: Played) -> None:
    played.store.stop("a")
    played.ends("a", JobStatus.STOPPED)


@pytest.mark.parametrize(
    ("end", "state"), [(finish, "FINISHED"), (refuse, "FAILED"), (stop, "KILLED")]
)
def test_every_end_is_told_once(played: Played, end: Callable[[Played], None], state: str) -> None:
    played.submit("a", notify=TELL)
    tell(played)
    assert states(played) == []
    end(played)
    tell(played)
    restart(played)
    tell(played)
    assert states(played) == [state]


def test_one_that_is_stopped_in_the_queue_is_told_although_ray_is_away(played: Played) -> None:
    played.submit("a", notify=TELL)
    played.store.stop("a")

    def away() -> Any:
        raise ConnectionError

    played.cluster.jobs = away  # type: ignore[method-assign]
    with pytest.raises(ConnectionError):
        played.step()
    wait_for_processes(played)
    assert states(played) == ["KILLED"]


def test_an_evicted_head_that_comes_back_tells_the_end_and_nothing_before(played: Played) -> None:
    played.submit("a", notify=TELL)
    played.step()
    played.cluster.becomes(played.store.get("a").job, JobStatus.STOPPED)
    played.step(closing=True)  # Before an eviction, systemd stops the queue.
    restart(played)
    tell(played)
    assert states(played) == []
    finish(played)
    tell(played)
    assert states(played) == ["FINISHED"]


def test_a_queue_that_starts_again_meanwhile_does_not_tell_it_twice(played: Played) -> None:
    played.submit("a", notify=f"sleep 2; {TELL}")
    played.store.stop("a")
    played.step()
    first = played.queue._notices._telling["a"].process
    restart(played)
    tell(played)
    assert first.wait(timeout=60) == 0
    assert states(played) == ["KILLED"]


def test_what_was_killed_while_it_told_is_told_after_the_next_start(played: Played) -> None:
    played.submit("a", notify=f"echo $$ > pid; [ ! -e hang ] || exec sleep 600; {TELL}")
    hang = played.store.folder("a") / "hang"
    hang.touch()
    played.store.stop("a")
    played.step()
    process = played.queue._notices._telling["a"].process
    pid = played.store.folder("a") / "pid"
    while not (pid.exists() and pid.read_text().endswith("\n")):
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGKILL)  # As systemd does at a stop.
    os.kill(int(pid.read_text()), signal.SIGKILL)
    process.wait()
    hang.unlink()
    restart(played)
    tell(played)
    assert states(played) == ["KILLED"]


def test_after_a_resume_the_next_end_is_told_too(played: Played) -> None:
    played.submit("a", notify=TELL)
    played.store.stop("a")
    tell(played)
    played.store.resume("a")
    played.step()
    finish(played)
    tell(played)
    assert states(played) == ["KILLED", "FINISHED"]


def test_the_queue_does_not_wait(played: Played) -> None:
    played.submit("a", notify="sleep 600")
    played.store.stop("a")
    begun = time.monotonic()
    for _ in range(3):
        played.step()
    assert time.monotonic() - begun < 5
    played.step(closing=True)
    assert played.queue.step(closing=True)  # It gives what is being told some seconds.
    tell(played)
    assert played.store.get("a").untold == "the command has not ended in 10 s"


def test_a_secret_url_gets_what_is_known_and_no_secret(played: Played, root: Path) -> None:
    status = {"state": "FINISHED", "reason": "no t0ken", "env_steps": 7, "best_return": 2.5}
    played.submit("a", notify="$CHAT", algorithm="PPO", env="CartPole-v1")
    played.step()
    share = {"key": "a-key", "name": "a", "submitted_by": "me@home"}
    cost = {"shares": [{**share, "dollars": 1.25, "cpu_hours": 3.0}]}
    (root / "var/lib/volley/cost.json").write_text(json.dumps(cost))
    with receiving(own_address()) as receiver:
        secrets = f"export CHAT={shlex.quote(receiver.url)}\nexport KEY=t0ken\n"
        (root / "var/lib/volley/.secrets/a").write_text(secrets)
        (played.store.folder("a") / "status.json").write_text(json.dumps(status))
        finish(played)
        tell(played)
    (received,) = receiver.received
    assert received.pop("time").startswith("20")
    assert received == {
        **{"text": "a: FINISHED: no ***", "name": "a", "state": "FINISHED", "reason": "no ***"},
        **{"algorithm": "PPO", "env": "CartPole-v1", "steps": 7, "best_return": 2.5},
        **{"last_return": None, "run_id": None, "cost": 1.25},
    }
    assert played.store.get("a").untold == ""
    assert PATH not in (played.store.folder("a") / "state.json").read_text()


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://169.254.169.254/x", "169.254.169.254: is a machine's own or Azure's metadata"),
        ("http://127.0.0.1:9/x", "127.0.0.1: is a machine's own or Azure's metadata"),
        ("", "$CHAT is not set in the environment: volley submit sends it"),
    ],
)
def test_what_cannot_be_told_is_in_the_record(
    played: Played, root: Path, capfd: pytest.CaptureFixture[str], url: str, problem: str
) -> None:
    (root / "var/lib/volley/.secrets/a").write_text(f"export CHAT={url}\n")
    played.submit("a", notify="$CHAT")
    played.store.stop("a")
    tell(played)
    assert played.store.get("a").untold.startswith(problem)
    assert f"a: nobody was notified: {problem}" in capfd.readouterr().out


def test_a_cluster_that_sleeps_at_its_budget_tells_those_that_it_interrupts_once(
    played: Played, root: Path
) -> None:
    for name in ("a", "waits"):
        played.submit(name, notify=TELL, needs={"num_env_runners": 2})
    played.step()
    now = present_moment()
    sleep = SleepRecord(
        now.boot, now.booted, going=True, why="budget: 5.01 of 5 dollars", whatever_runs=True
    )
    (root / "run/volley/sleep.json").write_text(json.dumps(asdict(sleep)))
    assert played.step(closing=True)
    wait_for_processes(played)
    played.step(closing=True)
    wait_for_processes(played)
    told = json.loads((played.store.folder("a") / "told").read_text())
    assert (told["state"], told["reason"]) == (
        "KILLED",
        "the cluster is going to sleep: budget: 5.01 of 5 dollars; continues after volley start",
    )
    assert states(played, "waits") == []
    (root / "run/volley/sleep.json").unlink()
    finish(played)
    tell(played)
    assert states(played) == ["KILLED", "FINISHED"]
