"""volley-head without a queue: its answers, its refusals, and the state it leaves unchanged."""

from __future__ import annotations

import io
import json
import os
import tarfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from infra.config.stack_settings import StackSettings
from infra.stack.head_software import cluster_settings
from payload.parcel import ExperimentFiles
from tests.head.queue.queue_head import Head, Written, cartpole, sent
from tests.infra.declared_stack import REQUIRED

pytestmark = pytest.mark.slow


def test_a_submitted_experiment_waits_with_all_its_files(head: Head) -> None:
    answer = head.submit("pong", cartpole())
    assert answer == {"name": "pong", "state": "QUEUED", "position": 1}
    folder = head.experiments / "pong"
    assert (folder / "experiment.yaml").read_text() == cartpole()
    assert (folder / "payload/__init__.py").exists()
    assert head.record("pong")["needs"]["num_env_runners"] == 1


def test_submitting_twice_changes_nothing(head: Head) -> None:
    head.submit("pong", cartpole())
    before = head.record("pong")
    assert head.submit("pong", cartpole())["position"] == 1
    assert head.record("pong") == before


def test_two_that_submit_at_once_submit_one(head: Head) -> None:
    with ThreadPoolExecutor() as threads:
        answers = list(threads.map(lambda _: head.submit("pong", cartpole()), range(4)))
    assert {answer["state"] for answer in answers} == {"QUEUED"}
    assert len(head.ask("status")["experiments"]) == 1
    assert sorted(path.name for path in head.experiments.iterdir()) == [".lock", "pong"]


def test_another_experiment_of_the_name_is_refused(head: Head) -> None:
    head.submit("pong", cartpole())
    answer = head.submit("pong", cartpole(env_runners=2))
    assert answer == {
        "error": "an experiment pong is QUEUED with other files",
        "next": "volley submit ... --name OTHER (or volley stop pong)",
    }


def test_one_of_pulumi_up_replaces_its_own_and_keeps_its_place(head: Head) -> None:
    head.submit("pong", cartpole(), "--replace")
    head.submit("other", cartpole())
    assert head.submit("pong", cartpole(env_runners=2), "--replace")["position"] == 1
    # This also holds under another name.
    assert head.submit("breakout", cartpole(), "--replace")["position"] == 1
    assert head.states() == {"breakout": "QUEUED", "pong": "STOPPED", "other": "QUEUED"}


def test_one_for_now_is_the_next(head: Head) -> None:
    head.submit("pong", cartpole())
    assert head.submit("urgent", cartpole(), "--now")["position"] == 1


def order(head: Head) -> list[str]:
    return [record["name"] for record in head.ask("status")["experiments"]]


def test_a_higher_priority_is_served_first_and_may_change_while_it_waits(head: Head) -> None:
    for name, *options in (("a",), ("b", "--priority", "-1"), ("c", "--priority", "5"), ("d",)):
        head.submit(name, cartpole(), *options)
    assert order(head) == ["c", "a", "d", "b"]
    assert head.submit("d", cartpole(), "--priority", "9")["position"] == 1
    assert head.submit("d", cartpole())["position"] == 1  # As it is.
    assert head.submit("urgent", cartpole(), "--now")["position"] == 1
    assert head.record("urgent")["priority"] == 9
    head.ask("stop", "c")
    assert head.ask("resume", "c")["position"] == 3


def test_one_of_pulumi_up_keeps_its_priority(head: Head) -> None:
    head.submit("pong", cartpole(), "--replace")
    head.submit("pong", cartpole(), "--priority", "3")
    head.submit("pong", cartpole(env_runners=2), "--replace")
    assert head.record("pong")["priority"] == 3


def test_one_that_waits_is_stopped_at_once_and_resumed_at_the_end(head: Head) -> None:
    head.submit("pong", cartpole())
    head.submit("other", cartpole())
    assert head.ask("stop", "pong")["state"] == "STOPPED"
    assert head.ask("resume", "pong") == {"name": "pong", "state": "QUEUED", "position": 2}
    assert head.ask("resume", "pong")["position"] == 2


@pytest.mark.parametrize(("away", "waits"), [(0, False), (2, True)])
def test_who_waits_for_a_training_hears_of_failures_and_waits_for_what_is_away(
    head: Head, away: int, waits: bool
) -> None:
    head.submit("pong", cartpole())
    file = head.experiments / "pong/state.json"
    changes = {"state": "STARTING", "reason": "it broke", "not_before": 9e9, "away": away}
    file.write_text(json.dumps({**head.record("pong"), **changes}))
    start = time.monotonic()
    answer = head.ask("wait", "pong", "--timeout", "5")
    assert (answer["state"], answer["reason"]) == ("STARTING", "it broke")
    assert (time.monotonic() - start >= 5) == waits


def test_a_name_that_does_not_exist_is_told_with_the_nearest(head: Head) -> None:
    head.submit("pong", cartpole())
    assert head.ask("stop", "pomg") == {
        "error": "no experiment is called pomg (did you mean pong?)",
        "next": "volley status",
    }


@pytest.mark.parametrize("name", ["Pong", "a/b", "..", "-x", "a" * 41])
def test_an_invalid_name_is_refused(head: Head, name: str) -> None:
    answer = head.ask("submit", *(["--", name] if name[0] == "-" else [name]), stdin=b"")
    assert "is not a name" in answer["error"]
    assert list(head.experiments.iterdir()) == []


def test_what_the_payload_refuses_is_refused_at_once(head: Head) -> None:
    answer = head.submit("pong", "config: {num_wrokers: 2}\n")
    assert "num_wrokers" in answer["error"]
    assert "did you mean" in answer["error"]
    assert list(head.experiments.glob("*")) == []


def test_files_that_did_not_arrive_whole_are_refused(head: Head) -> None:
    answer = head.ask("submit", "pong", stdin=sent(cartpole())[:5000])
    assert "arrived incomplete" in answer["error"]


def test_an_experiment_that_never_fits_is_refused(head: Head) -> None:
    node = {"name": "head", "address": "10.0.0.4", "role": "head", "cpus": 2, "gpus": 0}
    nodes = json.dumps({"time": 0, "nodes": [{**node, "state": "ALIVE"}], "drivers": 0})
    (head.experiments / ".cluster.json").write_text(nodes)
    answer = head.submit("pong", "config: {num_learners: 2}\n")
    assert answer["error"] == (
        "needs 3 CPUs; the cluster has at most 2 CPUs and 0 GPUs (1 machines)"
    )


def test_one_that_fits_on_workers_that_are_not_there_yet_is_taken(head: Head) -> None:
    settings = StackSettings.model_validate({**REQUIRED, "headSize": "Standard_D2as_v5"})
    file = head.settings
    file.write_text(cluster_settings(settings, "set", "vm").to_json())
    assert head.submit("pong", "config: {num_learners: 2}\n")["state"] == "QUEUED"
    answer = head.submit("pong-2", "config: {num_learners: 20}\n")
    assert answer["error"].endswith("the cluster has at most 10 CPUs and 0 GPUs (5 machines)")


def test_the_status_of_two_hundred_experiments_takes_less_than_two_seconds(head: Head) -> None:
    head.submit("pong", cartpole())
    text = (head.experiments / "pong/state.json").read_text()
    for number in range(200):
        folder = head.experiments / f"e{number}"
        folder.mkdir()
        (folder / "state.json").write_text(text.replace('"pong"', f'"e{number}"'))
        (folder / "status.json").write_text('{"state": "TRAINING", "run": "r", "reason": ""}')
    start = time.monotonic()
    answer = head.ask("status")
    assert time.monotonic() - start < 2
    assert len(answer["experiments"]) == 201


def test_one_experiments_status_is_all_that_is_known_of_it(head: Head) -> None:
    head.submit("pong", cartpole())
    head.submit("other", cartpole())
    (found,) = head.ask("status", "--name", "other")["experiments"]
    assert (found["name"], found["position"], found["status"]) == ("other", 2, None)


def test_the_last_lines_of_an_experiment_are_shown(head: Head) -> None:
    head.submit("pong", cartpole())
    (head.experiments / "pong/output.log").write_text("one\ntwo\nthree\n")
    assert head.volley_head("logs", "pong", "--lines", "2").stdout == b"two\nthree\n"


def test_the_files_of_the_runs_are_listed_and_sent(head: Head) -> None:
    head.submit("pong", cartpole())
    root = head.root / "var/lib/volley/runs" / head.record("pong")["key"]
    write(root / "runs/one/checkpoints/checkpoint_1/state", "weights")
    write(root / "runs/one/checkpoints/.checkpoint_2/state", "half")
    (root / "runs/one/best").symlink_to("checkpoints/checkpoint_1")
    answer = head.ask("manifest", "pong")
    assert answer["root"] == str(root)
    found = {one["path"]: one for one in answer["files"]}
    assert sorted(found) == ["runs/one/best", "runs/one/checkpoints/checkpoint_1/state"]
    assert found["runs/one/best"]["link"] == "checkpoints/checkpoint_1"
    assert found["runs/one/checkpoints/checkpoint_1/state"]["size"] == len("weights")
    asked = json.dumps([*found, "gone"]).encode()
    done = head.volley_head("files", "pong", stdin=asked)
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        # The manifest has a link's target; only files are sent.
        assert archive.getnames() == ["runs/one/checkpoints/checkpoint_1/state"]


def test_the_notebooks_are_listed_without_an_experiment(head: Head) -> None:
    notebooks = head.root / "var/lib/volley/runs/notebooks"
    write(notebooks / "plots/returns.ipynb", "{}")
    write(notebooks / ".ipynb_checkpoints/returns-checkpoint.ipynb", "{}")
    answer = head.ask("manifest", "notebooks")
    assert [file["path"] for file in answer["files"]] == ["plots/returns.ipynb"]


@pytest.mark.parametrize("path", ["../../mlflow.db", "/etc/passwd", ".."])
def test_files_elsewhere_are_not_sent(head: Head, path: str) -> None:
    head.submit("pong", cartpole())
    write(head.root / "var/lib/volley/runs" / head.record("pong")["key"] / "file", "")
    done = head.volley_head("files", "pong", stdin=json.dumps([path]).encode())
    assert done.returncode == 2
    assert b"is not below" in done.stdout


def test_a_link_of_an_experiment_is_not_followed_as_root(head: Head, tmp_path: Path) -> None:
    head.submit("pong", cartpole())
    secret = tmp_path / "secret"
    secret.write_text("of root\n")
    log = head.experiments / "pong/output.log"
    log.symlink_to(secret)
    shown = head.volley_head("logs", "pong")
    assert shown.returncode == 2
    assert b"output.log cannot be read: " in shown.stdout
    log.unlink()
    os.mkfifo(log)  # Opening it would wait for a writer.
    assert b"is not a regular file" in head.volley_head("logs", "pong").stdout
    runs = head.root / "var/lib/volley/runs" / head.record("pong")["key"]
    runs.mkdir(parents=True)
    (runs / "link").symlink_to(secret)
    (runs / "folder").symlink_to(tmp_path)
    asked = json.dumps(["link", "folder/secret"]).encode()
    with tarfile.open(
        fileobj=io.BytesIO(head.volley_head("files", "pong", stdin=asked).stdout)
    ) as archive:
        assert archive.getnames() == []
    runs.rename(runs.with_name("other"))
    runs.symlink_to(tmp_path)
    assert "is a link, which is not followed" in head.ask("manifest", "pong")["error"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"name": "../outside"}, "../outside is outside the folder"),
        ({"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"}, "source/a is not a regular file"),
        ({"type": tarfile.CHRTYPE}, "source/a is not a regular file"),
        ({"size": 2**50}, "source/a is incomplete"),
    ],
)
def test_an_archive_with_anything_but_files_of_the_experiment_is_refused(
    head: Head, change: dict[str, Any], reason: str
) -> None:
    member = tarfile.TarInfo("source/a")
    for key, value in change.items():
        setattr(member, key, value)
    files = ExperimentFiles(cartpole().encode(), Written(member.tobuf()))
    assert reason in head.submit("pong", files)["error"]
    assert [path.name for path in head.experiments.iterdir()] == []


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize("words", [(), ("stop",), ("job", "submit")])
def test_ray_is_only_asked(head: Head, words: tuple[str, ...]) -> None:
    answer = head.ask("ray", *words)
    assert answer["error"].endswith(
        "only commands that change nothing are allowed: status, list, get, summary, memory, logs"
    )


def test_ray_is_asked_with_the_clusters_settings(head: Head) -> None:
    settings = head.root / "etc/volley"
    settings.mkdir(parents=True, exist_ok=True)
    (settings / "ray.env").write_text("# The token.\nRAY_AUTH_MODE=token\n")
    (settings / "machine.env").write_text("RAY_START_FLAGS='--a --b'\n")
    program = head.root / "opt/volley/venv/bin/ray"
    program.write_text('#!/bin/sh\necho "$@ $RAY_AUTH_MODE $RAY_START_FLAGS $HOME"\n')
    program.chmod(0o755)
    done = head.volley_head("ray", "--", "list", "nodes", "--limit", "5")
    assert done.stdout.decode() == f"list nodes --limit 5 token --a --b {head.home}\n"


def test_a_login_to_a_registry_is_kept_for_ray_alone_and_removed(head: Head) -> None:
    assert head.ask("registry-login", "ghcr.io", stdin=b"bWU6cw==") == {"registries": ["ghcr.io"]}
    file = head.home / ".registry-logins.json"
    assert json.loads(file.read_text()) == {"auths": {"ghcr.io": {"auth": "bWU6cw=="}}}
    assert file.stat().st_mode & 0o777 == 0o600
    refusal = head.ask("registry-login", "docker.io")
    assert refusal["error"] == "docker.io: no login; there are logins to ghcr.io"
    assert head.ask("registry-login", "ghcr.io") == {"registries": []}


def test_now_brings_what_waits_to_the_front(head: Head) -> None:
    head.submit("first", cartpole(), "--priority", "3")
    head.submit("pong", cartpole())
    assert head.submit("pong", cartpole(), "--now")["position"] == 1
    assert head.submit("pong", cartpole())["position"] == 1


def test_a_stop_under_way_is_taken_back_by_resume_and_by_the_same_submit(head: Head) -> None:
    head.submit("pong", cartpole())
    for again in (lambda: head.ask("resume", "pong"), lambda: head.submit("pong", cartpole())):
        change(head, state="TRAINING", wish="stop")
        assert again()["state"] == "TRAINING"
        assert head.record("pong")["wish"] == "requeue"


def test_what_a_new_experiment_replaces_is_told_and_its_runs_stay_within_reach(head: Head) -> None:
    other = cartpole().replace("CartPole-v1", "Acrobot-v1")
    head.submit("pong", cartpole())
    key = head.record("pong")["key"]
    runs = head.home / "runs" / key
    runs.mkdir(parents=True)
    (runs / "progress.csv").write_text("earlier")
    change(head, state="FINISHED", submitted_by="ann@laptop")
    answer = head.submit("pong", other)
    assert answer["replaced"] == {"state": "FINISHED", "by": "ann@laptop", "runs": key}
    assert [file["path"] for file in head.ask("manifest", key)["files"]] == ["progress.csv"]
    assert "replaced" not in head.submit("pong", other)


@pytest.mark.parametrize("name", ["..", "", "a/b", ".lock"])
def test_what_cannot_be_a_name_is_not_looked_for(head: Head, name: str) -> None:
    head.submit("pong", cartpole())
    for verb in ("stop", "resume", "rm", "manifest"):
        assert head.ask(verb, name)["error"].startswith(f"no experiment is called {name}")


def change(head: Head, **changes: Any) -> None:
    """Changes the record of `pong`, as the queue does."""
    file = head.experiments / "pong" / "state.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))
