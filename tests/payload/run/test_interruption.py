"""What ends a run from outside its loop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

import payload.run.interruption
from payload.run.interruption import Interruption, TrainingStalledError

INSIDE_A_CALL_OF_C = """
import ctypes, os, signal, threading
from payload.run.interruption import Interruption

def end(reason):
    os.write(1, reason.encode())
    os._exit(1)

with Interruption(end) as interruption:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    threading.Timer(0.1, interruption.fail, ["gone"]).start()
    ctypes.CDLL(None).sleep(30)
"""


@pytest.fixture
def interruption(monkeypatch: pytest.MonkeyPatch) -> Iterator[Interruption]:
    # A machine that stands still for two seconds must not count as a stuck main thread.
    monkeypatch.setattr("payload.run.interruption.STUCK_AFTER_S", 60.0)
    with Interruption(on_stuck=pytest.fail) as interruption:
        yield interruption


def test_a_run_under_nohup_outlives_its_terminal() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interruption(on_stuck=pytest.fail) as interruption:
            signal.raise_signal(signal.SIGHUP)
        assert not interruption.requested
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("name", ["_LearnerThread", "_GPULoaderThread"])
def test_a_run_ends_with_what_a_thread_of_its_learner_died_of(
    interruption: Interruption, name: str
) -> None:
    def out_of_memory() -> None:
        raise RuntimeError("CUDA error: out of memory")

    def run() -> None:
        with interruption.watch():
            threading.Thread(target=out_of_memory, name=name).start()
            threading.Event().wait(10)

    with pytest.raises(TrainingStalledError, match="RuntimeError: CUDA error: out of memory"):
        run()


def test_a_failure_between_two_iterations_ends_the_next_one(interruption: Interruption) -> None:
    failing = threading.Thread(target=interruption.fail, args=["gone"])
    failing.start()
    failing.join()

    def iteration() -> None:
        with interruption.watch():
            pytest.fail("the iteration ran")

    with pytest.raises(TrainingStalledError, match="gone"):
        iteration()


@pytest.mark.slow
def test_a_failure_that_the_main_thread_does_not_notice_ends_the_process() -> None:
    done = subprocess.run(
        [sys.executable, "-c", INSIDE_A_CALL_OF_C], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "gone"), done.stderr


def test_a_signal_that_is_sent_twice_at_once_is_one_request(interruption: Interruption) -> None:
    """`timeout` sends it this way."""
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGTERM)
    assert (interruption.requested, interruption.exit_code) == (True, 143)


def test_a_second_signal_stops_at_once(
    interruption: Interruption, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(payload.run.interruption, "SAME_REQUEST_S", 0.0)
    os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
    assert interruption.exit_code == 143
