"""Results without a head: what `status`, `logs`, `pull` and `ui` read from a real Blob service."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from azure.core.exceptions import ClientAuthenticationError

import volley.saved_results
from head.queue.record import Record
from payload.errors import UserError
from payload.tracking.mlflow_run import MLflowRun, Tracking
from rehearsal.azure.blob.blob_proxy import Access
from rehearsal.azure.blob.blob_storage import BlobStorage
from tests.free_port import free_port
from tests.head.results.cluster import HEAD_ACCESS, Cluster
from tests.head.results.conftest import cluster, make, storage  # noqa: F401
from tests.volley.conftest import Laptop
from volley import ui
from volley.arguments import parse
from volley.cli import main
from volley.results_account import Account
from volley.saved_database import download_database
from volley.saved_results import SavedResults
from volley.sleeping_head import AsleepError
from volley.stack import Stack

pytestmark = pytest.mark.slow
KEY = "pong-0123456789ab"
RUN = "runs/PPO_CartPole-v1_2026-11-29_10-00-00"
OUTPUTS = {
    "ssh": "ssh -o ConnectTimeout=1 volley@127.0.0.1",
    "headVmId": "vm-1",
    "headHostKey": "",
    "headId": "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/h",
    "resultsUrl": "https://results.blob.core.windows.net/results",
}


def experiment(head: Cluster, name: str, state: str, **fields: Any) -> Path:
    folder = head.home / "experiments" / name
    folder.mkdir(parents=True)
    Record(name, state, key=f"{name}-0123456789ab", **fields).write(folder)
    return folder


@pytest.fixture
def saved(cluster: Cluster) -> Cluster:  # noqa: F811
    """A head that has saved a trained experiment, one that waits, and older runs of a third."""
    folder = experiment(cluster, "pong", "FINISHED", started=1.0, reason="goal reached")
    (folder / "output.log").write_text("first\nsecond\nthird\n")
    status = {"state": "FINISHED", "env_steps": 2000, "episode_return": 18.5}
    (folder / "status.json").write_text(json.dumps(status))
    experiment(cluster, "next", "QUEUED", order=1)
    files = {
        f"{KEY}/{RUN}/checkpoints/1/weights": b"1" * 100_000,
        f"{KEY}/{RUN}/progress.csv": b"steps\n1\n",
        f"old-ba9876543210/{RUN}/driver_log.txt": b"printed by the driver\n",
    }
    for path, content in files.items():
        file = cluster.home / "runs" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        os.utime(file, ns=(10**18, 10**18))
    (cluster.home / "runs" / KEY / RUN / "checkpoints/best").symlink_to("1")
    assert cluster.save()
    return cluster


@pytest.fixture
def off(saved: Cluster, laptop: Laptop, monkeypatch: pytest.MonkeyPatch) -> Laptop:
    """A laptop, in this process, whose cluster was destroyed after its outputs were seen."""
    for name, value in laptop.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(laptop.folder)
    monkeypatch.setattr(volley.saved_results, "connect", lambda _: saved.blobs)
    laptop.outputs(**OUTPUTS)
    Stack().outputs()
    laptop.outputs()
    return laptop


@pytest.fixture
def asleep(off: Laptop, monkeypatch: pytest.MonkeyPatch) -> Laptop:
    """The same, but the cluster sleeps."""
    off.outputs(**OUTPUTS)

    def head(_: object) -> None:
        raise AsleepError("The cluster is asleep. Next: volley start")

    monkeypatch.setattr("volley.source.Head", head)
    return off


@pytest.mark.usefixtures("asleep")
def test_a_sleeping_cluster_is_a_state(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status"]) == 0
    said = capsys.readouterr().out
    assert said.splitlines()[0] == "The cluster is asleep. Next: volley start"
    words = ("pong", "FINISHED", "18.50", "2,000", "goal reached", "QUEUED (1)", "old", "SAVED")
    assert [word for word in words if word not in said] == []
    assert "from the results account results" in said
    assert main(["status", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["asleep"], answer["results_account"]) == (True, "results")
    assert {e["name"]: e["state"] for e in answer["experiments"]} == {
        "old": "SAVED",
        "pong": "FINISHED",
        "next": "QUEUED",
    }


@pytest.mark.usefixtures("asleep")
def test_it_is_a_state_even_if_the_results_cannot_be_read(
    saved: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_: object) -> None:
        raise ClientAuthenticationError("Please run 'az login' to set up an account.")

    saved.before_request = refuse
    assert main(["status"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == "The cluster is asleep. Next: volley start"
    assert second == (
        "Its experiments cannot be listed: not logged in to Azure: Please run 'az login' to set up "
        "an account. Next: az login"
    )
    assert main(["logs", "pong"]) == 2
    assert capsys.readouterr().err.startswith(
        "volley: The cluster is asleep; from the results account: not logged in to Azure"
    )


@pytest.mark.usefixtures("off")
def test_a_destroyed_cluster_shows_what_it_has_left(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("The selected stack has no cluster. Next: volley up\n")
    assert "goal reached" in said


def test_without_a_known_account_it_says_how_to_name_one(
    off: Laptop, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in off.home.glob("outputs-*"):
        file.unlink()
    assert main(["status"]) == 2
    line = capsys.readouterr().err
    assert line == (
        "volley: the selected stack has no cluster. Next: volley up, or for earlier results "
        "--results-account NAME\n"
    )
    assert main(["status", "--results-account", "results"]) == 0
    assert "goal reached" in capsys.readouterr().out


@pytest.mark.usefixtures("off")
@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (["pong"], "first\nsecond\nthird\n"),
        (["--lines", "2"], "second\nthird\n"),  # That of the last that has trained.
        (["old", "-f"], "printed by the driver\n"),
    ],
)
def test_logs_are_the_last_lines_that_were_saved(
    words: list[str], printed: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert main(["logs", *words]) == 0
    out, err = capfdbinary.readouterr()
    assert out.decode() == printed
    assert b"this is from the results account results" in err


@pytest.mark.usefixtures("off")
@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["logs", "pomg"], "has no experiment pomg (did you mean pong?)"),
        (["pull", "pomg"], "has no experiment pomg (did you mean pong?)"),
        (["logs", "next"], "next has no log in the results account"),
        (["logs", "--unit", "mlflow"], "the results account has the output of experiments only"),
        (["status", "--results-account", "No!"], "must be the account's name (3 to 24 of a-z"),
    ],
)
def test_what_it_does_not_have_is_told_in_one_line(
    words: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert reason in line


@pytest.mark.usefixtures("off")
def test_pull_brings_files_and_links_once_with_the_heads_times(
    saved: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pull", "pong", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["files"] == 3
    folder = Path("results/pong", RUN)
    assert (folder / "progress.csv").read_bytes() == b"steps\n1\n"
    assert os.readlink(folder / "checkpoints/best") == "1"
    weights = folder / "checkpoints/1/weights"
    assert (weights.read_bytes(), weights.stat().st_mtime_ns) == (b"1" * 100_000, 10**18)
    inode = weights.stat().st_ino
    saved.write_run("unused", "x")
    (saved.home / "runs" / KEY / RUN / "finished").touch()
    saved.save()
    assert main(["pull", "pong", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["files"] == 1
    assert weights.stat().st_ino == inode


@pytest.mark.usefixtures("off")
def test_pull_of_an_experiment_that_the_queue_has_forgotten(tmp_path: Path) -> None:
    assert main(["pull", "old", "--to", str(tmp_path / "there")]) == 0
    assert (tmp_path / "there" / RUN / "driver_log.txt").exists()


@pytest.mark.usefixtures("off")
def test_a_login_without_the_role_is_told_the_command_that_assigns_it(
    storage: BlobStorage,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    storage.grant(Access(HEAD_ACCESS.accounts, ()))
    try:
        assert main(["pull", "pong"]) == 2
    finally:
        storage.grant(HEAD_ACCESS)
    (line,) = capsys.readouterr().err.splitlines()
    assert "your Azure login may not read the account results. Next: an owner types:" in line
    assert 'az role assignment create --role "Storage Blob Data Reader" --scope' in line


def test_the_database_of_mlflow_is_opened_as_it_was_saved(saved: Cluster, tmp_path: Path) -> None:
    run = MLflowRun(Tracking.embedded(saved.database.parent, "pong"))
    run.log_metrics({"env_runners/episode_return_mean": 18.0}, 2000)
    run.close("FINISHED")
    assert saved.save()
    copy = download_database(SavedResults(Account("results"), saved.blobs), tmp_path)
    page = ui.newest_page(f"sqlite:///{copy}", "http://127.0.0.1:5000")
    assert page.startswith(f"http://127.0.0.1:5000/#/experiments/1/runs/{run.run_id}/")


def test_mlflows_pages_of_the_saved_database_are_served(
    saved: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    MLflowRun(Tracking.embedded(saved.database.parent, "pong")).close("FINISHED")
    assert saved.save()
    monkeypatch.setattr(volley.saved_results, "connect", lambda _: saved.blobs)
    words = ["ui", "--results-account", "results", "--port", str(free_port())]
    server = ui.server_of(parse(words), tmp_path)
    with (tmp_path / "log").open("w") as log, ui.running(server, str(tmp_path), log) as process:
        assert ui.answers_in_time(server, process), (tmp_path / "log").read_text()
    assert "wasbs://results@results.blob.core.windows.net/mlartifacts" in server.command


def test_an_account_without_a_database_says_so(cluster: Cluster, tmp_path: Path) -> None:  # noqa: F811
    with pytest.raises(UserError, match="the account results has no database of MLflow yet"):
        download_database(SavedResults(Account("results"), cluster.blobs), tmp_path)


NAMES = {
    "volleydev12ab34cd": ("volleydev12ab34cd", None),
    "https://volleydev.blob.core.windows.net/results": ("volleydev", None),
    "/subscriptions/s1/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/volleydev": (
        *("volleydev", "s1"),
    ),
}


@pytest.mark.parametrize(("text", "read"), NAMES.items())
def test_an_account_is_named_in_any_way(text: str, read: tuple[str, str | None]) -> None:
    account = Account.of(text)
    assert (account.name, account.subscription) == read
