"""The server from which env runners get the newest weights."""

from __future__ import annotations

import subprocess
import sys

import pytest

from payload.impala.state_server import StateServer


@pytest.fixture
def server() -> StateServer:
    return StateServer("version")


def test_a_newer_state_is_given(server: StateServer) -> None:
    server.push({"version": 3, "weights": "w"})
    assert server.pull_if_newer(2) == {"version": 3, "weights": "w"}


def test_a_state_that_an_env_runner_has_is_not_sent_again(server: StateServer) -> None:
    server.push({"version": 3})
    assert server.pull_if_newer(3) is None


def test_before_the_first_push_there_is_nothing_newer(server: StateServer) -> None:
    assert server.pull_if_newer(0) is None


def test_the_version_is_that_of_the_newest_state(server: StateServer) -> None:
    before = server.get_version()
    server.push({"version": 3})
    assert (before, server.get_version()) == (-1, 3)


@pytest.mark.slow
def test_its_process_imports_neither_rllib_nor_torch() -> None:
    code = "import sys, payload.impala.state_server; print({'ray', 'torch'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
