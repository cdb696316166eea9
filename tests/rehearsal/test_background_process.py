from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rehearsal import background_process
from tests.free_port import free_port

pytestmark = pytest.mark.slow

ADDRESS = "127.0.0.2"
LISTEN = """
import socket, sys, time
print("I listen", flush=True)
with socket.create_server((sys.argv[1], int(sys.argv[2]))):
    time.sleep(600)
"""


@pytest.fixture
def port() -> int:
    return free_port(ADDRESS)


@pytest.fixture
def pid_file(tmp_path: Path) -> Iterator[Path]:
    file = tmp_path / "pid"
    yield file
    background_process.stop(file)


def start(pid_file: Path, port: int, code: str = LISTEN, timeout_s: float = 30) -> None:
    background_process.start(
        [sys.executable, "-c", code, ADDRESS, str(port)],
        pid_file=pid_file,
        log=pid_file.with_name("log"),
        address=ADDRESS,
        port=port,
        timeout_s=timeout_s,
    )


def test_it_answers_once_it_is_started_and_ends_once_it_is_stopped(
    pid_file: Path, port: int
) -> None:
    start(pid_file, port)
    assert background_process.alive(pid_file)
    socket.create_connection((ADDRESS, port)).close()
    assert pid_file.with_name("log").read_text() == "I listen\n"

    background_process.stop(pid_file)
    assert not background_process.alive(pid_file)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((ADDRESS, port))


def test_a_second_start_leaves_it_running(pid_file: Path, port: int) -> None:
    start(pid_file, port)
    process = pid_file.read_text()
    start(pid_file, port)
    assert pid_file.read_text() == process


def test_it_outlives_its_starter_and_another_process_stops_it(pid_file: Path, port: int) -> None:
    code = (
        "import sys; from pathlib import Path; from tests.rehearsal.test_background_process "
        "import start; start(Path(sys.argv[1]), int(sys.argv[2]))"
    )
    subprocess.run([sys.executable, "-c", code, str(pid_file), str(port)], check=True)
    assert background_process.alive(pid_file)
    background_process.stop(pid_file)
    assert not background_process.alive(pid_file)


def test_one_that_ends_says_why(pid_file: Path, port: int) -> None:
    with pytest.raises(background_process.StartError, match=r"ended: .*no such luck"):
        start(pid_file, port, code="raise SystemExit('no such luck')")


def test_one_that_does_not_answer_is_stopped(pid_file: Path, port: int) -> None:
    deaf = "import time; print('deaf', flush=True); time.sleep(600)"
    with pytest.raises(background_process.StartError, match=r"does not answer: deaf"):
        start(pid_file, port, code=deaf, timeout_s=1)
    assert not background_process.alive(pid_file)


def test_an_address_that_another_process_has_is_named(pid_file: Path, port: int) -> None:
    with (
        socket.create_server((ADDRESS, port)),
        pytest.raises(background_process.StartError, match=f"{ADDRESS}:{port} is taken"),
    ):
        start(pid_file, port)


def test_one_that_ignores_the_request_to_end_is_killed(pid_file: Path, port: int) -> None:
    start(pid_file, port, code=f"import signal; signal.signal(15, signal.SIG_IGN)\n{LISTEN}")
    before = time.monotonic()
    background_process.stop(pid_file, timeout_s=0.5)
    assert 0.5 <= time.monotonic() - before < 5
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((ADDRESS, port))


@pytest.mark.parametrize("field", [1, 2], ids=["start time", "boot"])
def test_another_process_with_the_same_id_is_left_alone(
    pid_file: Path, tmp_path: Path, port: int, field: int
) -> None:
    start(pid_file, port)
    written = pid_file.read_text().split()
    written[field] = "1"
    old = tmp_path / "old"
    old.write_text(" ".join(written))
    assert not background_process.alive(old)
    background_process.stop(old)
    assert not old.exists()
    assert background_process.alive(pid_file)


def test_a_half_written_file_is_nobody(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    file.write_text("1")
    assert not background_process.alive(file)
    background_process.stop(file)
