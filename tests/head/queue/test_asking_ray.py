"""How the queue asks Ray: rarely, with time limits, and watched by systemd."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from ray.job_submission import JobStatus

from head.queue import ray_api
from head.queue.queue import QUIET_S
from head.queue.ray_api import JobClient, RayAwayError, RayCluster
from tests.head.queue.played_queue import Played
from tests.head.queue.queue_head import Head
from tests.local_server import json_server

pytestmark = pytest.mark.slow


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port on which somebody listens and never answers, as a stopped process does."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize("ask", [RayCluster.jobs, RayCluster.nodes])
def test_a_ray_that_does_not_answer_is_away_after_a_moment(
    silent_port: int, monkeypatch: pytest.MonkeyPatch, ask: object
) -> None:
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", f"http://127.0.0.1:{silent_port}")
    monkeypatch.setattr(JobClient, "limit_s", 0.3)
    monkeypatch.setattr(ray_api, "REQUEST_S", 1)
    start = time.monotonic()
    with pytest.raises(RayAwayError):
        ask(RayCluster())  # type: ignore[operator]
    assert time.monotonic() - start < 8


def test_each_step_makes_one_request_for_jobs_and_one_for_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    def answer(path: str, _: object) -> tuple[int, object]:
        asked.append(path.partition("?")[0])
        if path == "/api/version":
            return 200, {"ray_version": "2.60.0"}
        nodes = {"result": [], "total": 0, "num_after_truncation": 0, "num_filtered": 0}
        return 200, [] if path == "/api/jobs/" else {"result": True, "data": {"result": nodes}}

    with json_server(answer) as address:
        monkeypatch.setenv("RAY_API_SERVER_ADDRESS", address)
        cluster = RayCluster()
        for _ in range(3):
            cluster.jobs()
            cluster.nodes()
    # The client asks for the version when it is made.
    assert asked[-6:] == ["/api/jobs/", "/api/v0/nodes"] * 3
    assert set(asked[:-6]) == {"/api/version"}


def status_becomes(played: Played, name: str, state: str) -> None:
    status = {"state": state, "reason": ""}
    (played.store.folder(name) / "status.json").write_text(json.dumps(status))


def test_ray_is_asked_when_something_has_changed_and_otherwise_rarely(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    def settles() -> None:
        for _ in range(5):
            if played.queue.is_quiet():
                return
            played.step()
        pytest.fail("it never settles")

    settles()
    played.submit("a")
    assert not played.queue.is_quiet()
    played.step()
    played.step()
    assert not played.queue.is_quiet()  # It is starting.
    status_becomes(played, "a", "TRAINING")
    settles()
    status_becomes(played, "a", "FINISHED")
    assert not played.queue.is_quiet()
    played.step()
    assert not played.queue.is_quiet()  # Its job is about to end.
    played.ends("a", JobStatus.SUCCEEDED)
    settles()
    played.submit("b")
    played.store.stop("b")
    assert not played.queue.is_quiet()
    settles()
    later = time.monotonic() + QUIET_S
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert not played.queue.is_quiet()


def test_a_queue_tells_systemd_that_it_is_alive_also_without_ray(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        address = f"\0volley-test-{os.getpid()}"
        systemd.bind(address)
        systemd.settimeout(60)
        variables = {
            "NOTIFY_SOCKET": address.replace("\0", "@"),
            "RAY_API_SERVER_ADDRESS": "http://127.0.0.1:9",
            "MLFLOW_TRACKING_URI": "none",
        }
        head = Head(tmp_path, variables)
        with head.running():
            assert [systemd.recv(100) for _ in range(3)] == [b"WATCHDOG=1"] * 3
        assert "Ray does not answer" in head.journal
