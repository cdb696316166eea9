"""What Ray's user can ask of the machine's identity, and what it cannot."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from rehearsal.azure.resources import roles
from tests.head.identity.served_head import MAX_WORKERS, ServedHead, served_head

pytestmark = pytest.mark.slow


@pytest.fixture
def head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServedHead]:
    monkeypatch.setattr(roles, "ROLE_DELAY_S", -1)
    with served_head(tmp_path) as head:
        yield head


def test_workers_come_up_to_the_stacks_maximum_and_no_more(head: ServedHead) -> None:
    refused = head.request("grow", wanted=MAX_WORKERS + 1, growing=False)["refusal"]
    assert refused["message"] == "3 workers are more than maxWorkers: 2"
    assert head.request("grow", wanted=MAX_WORKERS, growing=False)["answer"]
    # Azure's capacity is not raised again while its machines come.
    for _ in range(3):
        assert head.request("grow", wanted=MAX_WORKERS, growing=False) == {"answer": ""}
    assert (head.azure.count("PATCH"), head.azure.capacity) == (1, MAX_WORKERS)
    assert len(head.request("machines")["answer"]) == MAX_WORKERS


@pytest.mark.parametrize("wanted", ["NaN", "Infinity", "1e9", '"2"', "[2]", "true", "null", "-1"])
def test_an_invalid_number_makes_no_worker(head: ServedHead, wanted: str) -> None:
    line = f'{{"request": "grow", "wanted": {wanted}, "growing": false}}\n'
    answer = head.send(line.encode())
    assert answer == {"answer": ""} if wanted == "-1" else "error" in answer
    assert head.azure.count("PATCH") == 0


def test_where_azure_scales_ray_can_neither_add_nor_delete(head: ServedHead) -> None:
    head.set(scaling="cpu")
    for request, value in (("grow", {"wanted": 1, "growing": False}), ("delete", {"names": []})):
        assert "does not scale" in head.request(request, **value)["error"]
    assert head.azure.management.asked == []


def test_only_workers_are_deleted(head: ServedHead) -> None:
    head.request("grow", wanted=1, growing=False)
    refused = head.request("delete", names=["head", "worker0"])["refusal"]
    assert refused["message"] == "not a worker: head"
    assert head.azure.count("POST") == 0
    assert "answer" in head.request("delete", names=["worker0"])
    assert head.azure.count("POST") == 1


def test_the_token_goes_to_no_other_address(head: ServedHead) -> None:
    asked = len(head.azure.management.asked)
    for url in (f"{head.azure.url}/subscriptions", "https://evil.example/", "", "worker0"):
        assert head.request("operation", url=url)["answer"]["status"] == "Canceled"
    assert len(head.azure.management.asked) == asked
    begun = head.request("grow", wanted=1, growing=False)["answer"]
    assert head.request("operation", url=begun)["answer"]["status"] in ("InProgress", "Succeeded")


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\n",
        b"[]\n",
        b"{}\n",
        b'{"request": "token"}\n',
        b'{"request": "save", "to": "/etc"}\n',
        b'{"request": "restore", "key": "../../etc"}\n',
        b'{"request": "restore", "key": "--help"}\n',
        b'{"request": "restore", "key": 1}\n',
        b"x" * 300_000,
        b"\xff\n",
        b"[" * 100_000 + b"\n",
    ],
)
def test_whatever_else_is_asked_is_refused(head: ServedHead, line: bytes) -> None:
    with suppress(ConnectionError):  # It does not read more than a request can have.
        assert list(head.send(line)) == ["error"]
    assert not head.calls.exists()
    assert "answer" in head.request("machines")


def test_a_save_says_whether_everything_is_saved(head: ServedHead) -> None:
    done = head.client("save")
    assert (done.returncode, done.stderr) == (0, "")
    head.code.write_text("1")
    done = head.client("save")
    assert (done.returncode, done.stderr) == (1, "save: last\n")
    assert head.calls.read_text() == "-m head.results save\n" * 2


def test_runs_that_do_not_come_whole_are_not_restored(head: ServedHead) -> None:
    done = head.client("restore", "pong-0123456789ab")
    assert done.returncode == 1
    assert "restore pong-0123456789ab: the runs arrived incomplete" in done.stderr
    assert head.calls.read_text() == "-m head.results export pong-0123456789ab\n"
    assert list((head.home / "runs").iterdir()) == []


def test_whoever_says_nothing_keeps_nobody_waiting(head: ServedHead) -> None:
    silent = [socket.socket(socket.AF_UNIX) for _ in range(20)]
    try:
        for connection in silent:
            connection.connect(str(head.socket))
        assert "answer" in head.request("machines")
    finally:
        for connection in silent:
            connection.close()
