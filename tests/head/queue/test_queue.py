"""The queue on a real Ray of two CPUs: experiments share it, wait, stop and continue."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from ray.cluster_utils import Cluster
from ray.job_submission import JobSubmissionClient

from head.queue.ray_api import RayCluster
from tests.head.queue.queue_head import SHORT, Head, cartpole
from tests.payload.command_line import wait_for

pytestmark = pytest.mark.slow


def test_two_experiments_share_the_cpus_and_a_third_starts_when_one_ends(
    cluster_head: Head,
) -> None:
    head = cluster_head
    with head.running():
        assert head.submit("first", cartpole())["state"] == "QUEUED"
        head.submit("second", cartpole())
        head.submit("third", cartpole(SHORT))
        head.wait_for("first", "TRAINING")
        head.wait_for("second", "TRAINING")
        assert head.states() == {"first": "TRAINING", "second": "TRAINING", "third": "QUEUED"}
        third = head.record("third")
        assert (third["reason"], third["attempts"]) == (
            "waiting for CPUs or GPUs in use by first, second",
            0,
        )
        assert head.ask("stop", "first")["state"] == "STOPPED"
        head.wait_for("third", "FINISHED")
        assert head.record("second")["attempts"] == 1
        assert head.ask("stop", "second")["state"] == "STOPPED"
    journal = head.journal
    assert re.search(r"^third: FINISHED: \S", journal, re.MULTILINE)
    assert re.search(r"^second: Training started after", journal, re.MULTILINE)


def runs(head: Head, name: str) -> list[Path]:
    """The run folders of an experiment."""
    return list((head.root / "var/lib/volley/runs" / head.record(name)["key"] / "runs").glob("*"))


def test_nothing_runs_twice_and_a_run_continues_whatever_ends_the_queue(cluster_head: Head) -> None:
    head = cluster_head
    with head.running() as queue:
        head.submit("one", cartpole())
        head.wait_for("one", "TRAINING")
        job = head.record("one")["job"]
        queue.send_signal(signal.SIGKILL)
        queue.wait()
    # Its job has continued; the next queue follows it, also as a new version of itself.
    with head.running() as queue:
        steps = head.steps("one")
        head.until(lambda: head.steps("one") > steps, "more steps")
        queue.send_signal(signal.SIGHUP)
        head.until(lambda: "loading the new version" in head.journal, "the new version")
        steps = head.steps("one")
        head.until(lambda: head.steps("one") > steps, "more steps")
        assert (head.record("one")["job"], head.record("one")["attempts"]) == (job, 1)
    # A queue that systemd stops has stopped it, with a checkpoint.
    (run,) = runs(head, "one")
    assert list(run.glob("checkpoints/checkpoint_*"))
    assert "KILLED: stopped by SIGTERM" in head.output("one")
    assert head.record("one")["state"] == "STARTING"
    with head.running():
        head.wait_for("one", "TRAINING")
        assert head.ask("stop", "one") == {"name": "one", "state": "STOPPED", "position": None}
        assert head.ask("stop", "one")["state"] == "STOPPED"
        assert head.ask("resume", "one")["state"] == "QUEUED"
        head.wait_for("one", "TRAINING")
        head.ask("stop", "one")
    assert runs(head, "one") == [run]
    assert head.output("one").count("Resumed from") == 2


def test_a_node_that_has_gone_away_is_not_counted(
    ray_with_dashboard: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", f"http://{ray_with_dashboard.webui_url}")
    seen = RayCluster()
    node = ray_with_dashboard.add_node(num_cpus=3)
    wait_for(lambda: [node.cpus for node in seen.nodes()] == [2, 3])
    ray_with_dashboard.remove_node(node)
    wait_for(lambda: [node.cpus for node in seen.nodes()] == [2])


def test_ray_jobs_of_other_programs_are_counted(
    cluster_head: Head, ray_with_dashboard: Cluster
) -> None:
    """They keep an idle cluster from going to sleep."""
    head = cluster_head

    def drivers() -> int:
        return int(json.loads((head.experiments / ".cluster.json").read_text())["drivers"])

    connect = f"import ray, time; ray.init({ray_with_dashboard.address!r}); time.sleep(100)"
    with head.running():
        head.submit("one", cartpole())
        head.wait_for("one", "TRAINING")
        assert drivers() == 0
        client = JobSubmissionClient(f"http://{ray_with_dashboard.webui_url}")
        job = client.submit_job(entrypoint="sleep 100")
        with subprocess.Popen([sys.executable, "-c", connect]) as driver:
            head.until(lambda: drivers() == 2, "two drivers")
            driver.kill()
        client.stop_job(job)
        head.until(lambda: drivers() == 0, "no driver")
        head.ask("stop", "one")


def test_what_the_payload_refuses_is_not_tried_again(cluster_head: Head) -> None:
    head = cluster_head
    with head.running():
        head.submit("one", "env: NoSuchEnvironment-v0\n")
        head.wait_for("one", "FAILED")
    record = head.record("one")
    assert record["attempts"] == 1
    assert record["reason"].startswith("payload: env: NoSuchEnvironment-v0")
