"""Which part of a training takes CPU time."""

import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from bench.cpu_time import (
    DRIVER,
    EMULATOR,
    ENV_RUNNERS,
    LEARNER,
    RAY,
    cpu_seconds,
    kind_of,
)
from bench.process import Child


@pytest.mark.parametrize(
    ("command", "is_driver", "is_main", "kind"),
    [
        ("ray::AtariEnvRunner.apply", False, True, ENV_RUNNERS),
        ("ray::AtariEnvRunner.apply", False, False, EMULATOR),
        (sys.executable, True, True, DRIVER),
        (sys.executable, True, False, LEARNER),
        ("raylet", False, False, RAY),
    ],
)
def test_a_thread_belongs_to_a_part(
    command: str, is_driver: bool, is_main: bool, kind: str
) -> None:
    assert kind_of(command, is_driver, is_main) == kind


def test_a_busy_thread_is_counted_apart_from_the_main_thread() -> None:
    own = psutil.Process()
    before = cpu_seconds(own.pid, [own])

    def work() -> None:
        end = time.thread_time() + 0.3
        while time.thread_time() < end:
            pass
        counted.append(cpu_seconds(own.pid, [own]))

    counted: list[dict[str, float]] = []
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert counted[0][LEARNER] - before[LEARNER] > 0.2
    assert counted[0][DRIVER] - before[DRIVER] < 0.2


@pytest.mark.slow
def test_the_processes_of_a_child_are_counted(tmp_path: Path) -> None:
    work = (
        "import time\n"
        "while time.process_time() < 0.5: pass\n"
        "print('over', flush=True)\n"
        "time.sleep(600)"
    )
    with Child([sys.executable, "-c", work], tmp_path / "log") as child:
        child.wait_for(lambda: "over" in child.log.read_text(), timeout_s=60)
        assert child.cpu_seconds()[DRIVER] > 0.4
