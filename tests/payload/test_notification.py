"""Notifications reach a URL or a command once, within seconds, and show no secret."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from payload import notification
from payload.notification import Notification, NotifyError, check, deliver, masked, target_of
from tests.free_port import free_port
from tests.receiver import PATH, Receiver, receiving

END = Notification(
    "pong", "PongNoFrameskip-v4", "PPO", "FAILED", "no t0ken is valid", "2026-11-30T00:00:00Z", 5
)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


def delivered(target: str, folder: Path, **options: bool) -> str:
    return deliver(target, END, folder, os.environ, pauses_s=(0.1, 0.1), **options)


@pytest.mark.slow
def test_a_url_gets_one_post_of_json(receiver: Receiver, tmp_path: Path) -> None:
    assert delivered(receiver.url, tmp_path) == ""
    (received,) = receiver.received
    assert receiver.headers[0]["path"] == PATH
    assert receiver.headers[0]["Content-Type"] == "application/json"
    assert received == {
        **{"text": "pong: FAILED: no t0ken is valid", "name": "pong", "state": "FAILED"},
        **{"env": "PongNoFrameskip-v4", "algorithm": "PPO", "reason": "no t0ken is valid"},
        **{"time": "2026-11-30T00:00:00Z", "steps": 5, "best_return": None},
        **{"last_return": None, "run_id": None, "cost": None},
    }


@pytest.mark.slow
def test_a_login_in_the_url_is_sent_as_one(receiver: Receiver, tmp_path: Path) -> None:
    assert delivered(receiver.url.replace("://", "://me:p%40ss@"), tmp_path) == ""
    assert receiver.headers[0]["Authorization"] == "Basic bWU6cEBzcw=="


@pytest.mark.slow
def test_a_url_that_fails_now_is_tried_again(receiver: Receiver, tmp_path: Path) -> None:
    receiver.answers = [503, 429]
    assert delivered(receiver.url, tmp_path) == ""
    assert len(receiver.received) == 3


@pytest.mark.slow
@pytest.mark.parametrize("answer", [404, 302, None])
def test_what_has_arrived_is_not_repeated(
    receiver: Receiver, tmp_path: Path, answer: int | None
) -> None:
    receiver.answers = [answer]
    problem = delivered(receiver.url, tmp_path)
    assert (f"HTTP {answer}" if answer else "it may have arrived") in problem
    assert len(receiver.received) == 1


@pytest.mark.slow
def test_a_url_that_does_not_answer_costs_seconds_and_no_second_post(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notification, "TRY_S", 0.5)
    receiver.released.clear()
    begun = time.monotonic()
    assert "it may have arrived" in delivered(receiver.url, tmp_path)
    assert time.monotonic() - begun < 4
    assert len(receiver.received) == 1


@pytest.mark.slow
def test_a_problem_does_not_show_the_url(tmp_path: Path) -> None:
    port = free_port()
    problem = delivered(f"http://me:pw@127.0.0.1:{port}{PATH}", tmp_path)
    assert problem.startswith(f"http://127.0.0.1:{port}/***: ")
    assert "refused" in problem
    assert "s3cret" not in problem
    assert "pw" not in problem


@pytest.mark.slow
def test_a_command_gets_the_same_json_and_variables(tmp_path: Path) -> None:
    command = 'cat > json; echo "$VOLLEY_NAME $VOLLEY_STATE $VOLLEY_REASON" > variables'
    assert delivered(command, tmp_path) == ""
    assert json.loads((tmp_path / "json").read_text())["steps"] == 5
    assert (tmp_path / "variables").read_text() == "pong FAILED no t0ken is valid\n"


@pytest.mark.slow
def test_a_command_that_fails_is_told_with_its_last_line(tmp_path: Path) -> None:
    problem = delivered("echo try; echo no http://chat/T0KEN >&2; exit 3", tmp_path)
    assert problem == "the command: exit code 3: no http://chat/***"


@pytest.mark.slow
def test_a_command_that_does_not_end_is_killed_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notification, "COMMAND_S", 1.0)
    problem = delivered("sleep 600 & echo $! > child; wait", tmp_path)
    assert "has not ended in 1 s" in problem
    child = Path("/proc", (tmp_path / "child").read_text().strip(), "stat")
    time.sleep(0.2)
    assert not child.exists() or child.read_text().split()[2] == "Z"


def test_whatever_happens_it_returns_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging = threading.Event()
    monkeypatch.setattr(notification, "_try", lambda *_: ("", hanging.wait(3)))
    begun = time.monotonic()
    assert notification.deliver_within(0.2, "http://h", END, tmp_path, {}) == "no answer in 0 s"
    assert time.monotonic() - begun < 2


@pytest.mark.parametrize(
    "host",
    [
        *("169.254.169.254", "168.63.129.16", "127.0.0.1", "127.8.9.1", "localhost", "a.localhost"),
        *("[::1]", "0.0.0.0", "[::ffff:169.254.169.254]", "2130706433", "0x7f.1", "LOCALHOST."),
        "[fe80::1]",
    ],
)
def test_a_cluster_notifies_neither_metadata_nor_itself(host: str) -> None:
    with pytest.raises(NotifyError, match="metadata address"):
        check(f"http://{host}/x", on_cluster=True)
    check(f"http://{host}/x")


@pytest.mark.slow
def test_a_name_of_such_an_address_is_refused_when_it_is_resolved(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolved = [(2, 1, 6, "", ("127.0.0.1", 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: resolved)
    url = receiver.url.replace("127.0.0.1", "metadata.example.com")
    assert "metadata address" in delivered(url, tmp_path, on_cluster=True)
    assert receiver.received == []


@pytest.mark.parametrize(
    "target",
    ["", "  ", "ftp://h/T0KEN", "htps://h/T0KEN", "http://", "https://h:x/T0KEN", "http://a b"],
)
def test_what_is_neither_url_nor_command_is_one_line_without_its_path(target: str) -> None:
    with pytest.raises(NotifyError) as error:
        check(target)
    assert "T0KEN" not in str(error.value)


def test_a_variable_has_the_url() -> None:
    assert target_of("${A}", {"A": "http://h/x"}) == target_of("$A", {"A": "http://h/x"})
    assert target_of("mail $A", {}) == "mail $A"
    with pytest.raises(NotifyError, match=r"\$A is not set in the environment"):
        target_of("$A", {"A": " "})


def test_secrets_are_masked() -> None:
    assert END.without(["t0ken", ""]).text == "pong: FAILED: no *** is valid"
    assert masked("curl 'https://u:p@h:1/a?b=c' -d x") == "curl 'https://h:1/***' -d x"
