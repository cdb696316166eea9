"""What the results account has of the queue: its experiments and what they printed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from head.queue.record import Record
from tests.head.results.cluster import Cluster

pytestmark = pytest.mark.slow


def experiment(cluster: Cluster, name: str, state: str = "TRAINING", **fields: Any) -> Path:
    folder = cluster.home / "experiments" / name
    folder.mkdir(parents=True)
    Record(name, state, key=f"{name}-0123456789ab", **fields).write(folder)
    return folder


def saved(cluster: Cluster, name: str) -> bytes:
    content: bytes = cluster.blobs.download_blob(name).readall()
    return content


def test_experiments_are_saved_with_state_place_and_figures(cluster: Cluster) -> None:
    folder = experiment(cluster, "pong", priority=2)
    experiment(cluster, "next", "QUEUED", order=1)
    status = {"state": "TRAINING", "env_steps": 10, "episode_return": 1.5, "reason": "x" * 999}
    (folder / "status.json").write_text(json.dumps({**status, "secrets": {"key": 1}, "run": [1]}))
    assert cluster.save()
    queue = json.loads(saved(cluster, "queue.json"))
    pong, waiting = queue["experiments"]
    assert (pong["name"], pong["state"], pong["priority"]) == ("pong", "TRAINING", 2)
    assert pong["status"] == {**status, "reason": "x" * 500}
    assert (waiting["state"], waiting["position"]) == ("QUEUED", 1)


def test_an_unchanged_queue_is_not_sent_again(cluster: Cluster) -> None:
    experiment(cluster, "pong")
    requests: list[str] = []
    cluster.before_request = lambda request: requests.append(f"{request.method} {request.url}")
    cluster.save()
    assert any("queue.json" in request for request in requests)
    requests.clear()
    cluster.save()
    assert requests == []


def test_what_an_experiment_prints_is_appended_and_kept(cluster: Cluster) -> None:
    output = experiment(cluster, "pong") / "output.log"
    output.write_text("first\n")
    cluster.save()
    with output.open("a") as file:
        file.write("second\n")
    bodies: list[int] = []
    cluster.before_request = lambda request: bodies.append(
        int(request.headers.get("Content-Length", 0))
    )
    cluster.save()
    assert saved(cluster, "experiments/pong/output.log") == b"first\nsecond\n"
    assert max(bodies) < 300
    output.write_text("rotated\n")
    cluster.save()
    assert saved(cluster, "experiments/pong/output.log") == b"rotated\n"
    output.unlink()
    cluster.save()
    assert saved(cluster, "experiments/pong/output.log") == b"rotated\n"


def test_no_link_of_an_experiment_is_followed(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret/output.log").write_text("secret")
    (experiment(cluster, "pong") / "output.log").symlink_to(tmp_path / "secret/output.log")
    (cluster.home / "experiments/other").symlink_to(tmp_path / "secret")
    assert cluster.save()
    names = list(cluster.blobs.list_blob_names(name_starts_with="experiments/"))
    assert [name for name in names if saved(cluster, name) == b"secret"] == []
