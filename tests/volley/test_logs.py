"""Logs in this terminal; Ctrl-C ends the command but nothing on the cluster."""

from __future__ import annotations

import json
import signal
import subprocess

import pytest

from tests.volley.conftest import Laptop
from tests.volley.head import LocalHead, until

pytestmark = pytest.mark.slow


def test_logs_show_an_experiments_output(connected: Laptop, head: LocalHead) -> None:
    head.experiment("pong")
    assert connected.volley("logs", "pong") == "first line\n"


def test_logs_of_a_unit_are_its_journal(connected: Laptop) -> None:
    said = connected.volley("logs", "--unit", "mlflow", "--lines", "7")
    assert said == "journalctl --unit=mlflow --no-pager --lines=7\n"


def test_logs_of_the_boot_are_the_end_of_cloud_inits(connected: Laptop, head: LocalHead) -> None:
    head.write("var/log/cloud-init-output.log", b"one\ntwo\nthree\n")
    assert connected.volley("logs", "--boot", "--lines", "2") == "two\nthree\n"


def interrupted(process: subprocess.Popen[str]) -> str:
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    (line,) = err.strip().splitlines()
    return line


def test_ctrl_c_ends_logs_and_says_that_the_cluster_keeps_running(
    connected: Laptop, head: LocalHead
) -> None:
    head.experiment("pong")
    process = connected.start("logs", "pong", "-f")
    assert process.stdout is not None
    assert process.stdout.readline() == "first line\n"
    assert interrupted(process).startswith("volley: Nothing has stopped on the cluster")
    connected.volley("status")
    assert head.connections() == 1


def test_a_lost_connection_ends_logs_with_the_next_command(
    connected: Laptop, head: LocalHead
) -> None:
    head.experiment("pong")
    process = connected.start("logs", "pong", "-f")
    assert process.stdout is not None
    process.stdout.readline()
    head.stop()
    head.start()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert err.strip().endswith("the cluster keeps running. Next: the same command again")


def test_logs_that_are_followed_end_with_the_experiment(connected: Laptop, head: LocalHead) -> None:
    folder = head.experiment("pong")
    process = connected.start("logs", "pong", "-f")
    assert process.stdout is not None
    assert process.stdout.readline() == "first line\n"
    with (folder / "output.log").open("a") as output:
        output.write("last line\n")
    assert process.stdout.readline() == "last line\n"
    head.change("pong", state="FINISHED")
    assert process.communicate(timeout=60) == ("", "")
    assert process.returncode == 0


def test_a_line_that_looks_like_a_refusal_is_shown(connected: Laptop, head: LocalHead) -> None:
    folder = head.experiment("pong")
    process = connected.start("logs", "pong", "-f")
    assert process.stdout is not None
    process.stdout.readline()
    with (folder / "output.log").open("a") as output:
        output.write('{"error": 0.1}\n')
    assert process.stdout.readline() == '{"error": 0.1}\n'
    interrupted(process)


def test_stop_waits_for_the_checkpoint(connected: Laptop, head: LocalHead) -> None:
    head.experiment("pong")
    process = connected.start("stop", "pong")
    until(lambda: head.record("pong")["wish"] == "stop")
    assert process.poll() is None
    head.change("pong", state="STOPPED")
    assert process.communicate(timeout=60) == ("pong: STOPPED\n", "")


def test_a_stop_whose_checkpoint_takes_long_says_where_to_look(
    connected: Laptop, head: LocalHead
) -> None:
    command = head.root / "usr/local/lib/volley/software/head/command/__main__.py"
    command.write_text(command.read_text().replace("STOPS_WITHIN_S = 180.0", "STOPS_WITHIN_S = 0"))
    head.experiment("pong")
    first, second = connected.volley("stop", "pong").splitlines()
    assert first == "pong: TRAINING"
    assert second == "Its checkpoint is not written yet. Next: volley status"


def test_ctrl_c_does_not_take_a_stop_back(connected: Laptop, head: LocalHead) -> None:
    head.experiment("pong")
    connected.volley("status")
    process = connected.start("stop", "pong")
    until(lambda: head.record("pong")["wish"] == "stop")
    assert "pong will still stop. Check: volley status" in interrupted(process)
    assert head.record("pong")["wish"] == "stop"
    assert "writing its checkpoint, then stops" in connected.volley("status")


def test_exec_returns_the_commands_output_and_exit_code(connected: Laptop) -> None:
    assert connected.volley("exec", "--", "echo", "a  b", "-l") == "a  b -l\n"
    path = connected.volley("exec", "--", "sh", "-c", "echo $PATH")
    assert path.startswith("/opt/volley/venv/bin:")
    process = connected.start("exec", "--", "sh", "-c", "exit 7")
    process.communicate()
    assert process.returncode == 7


def test_stop_and_resume_show_the_new_state(connected: Laptop, head: LocalHead) -> None:
    head.experiment("pong", "QUEUED")
    assert connected.volley("stop", "pong") == "pong: STOPPED\n"
    assert json.loads(connected.volley("resume", "pong", "--json"))["state"] == "QUEUED"


def test_one_that_has_finished_is_not_resumed(connected: Laptop, head: LocalHead) -> None:
    head.experiment("pong", "FINISHED")
    said = connected.volley("resume", "pong", code=2)
    assert said == "pong has finished. Next: volley submit EXPERIMENT --name pong"
