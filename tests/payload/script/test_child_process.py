"""How a script ends, and that nothing of it is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from payload.script import child_process
from payload.script.child_process import End, run
from tests.memory_group import memory_group
from tests.payload.command_line import wait_for

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_process, "GRACE_S", 1.0)


def run_text(
    folder: Path,
    text: str,
    *arguments: str,
    limit_s: float | None = None,
    forward: bool = True,
) -> End:
    """Runs a script with this text."""
    script = folder / "script.py"
    script.write_text(text)
    return run([str(script), *arguments], dict(os.environ), limit_s, forward)


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("", End("FINISHED", "the script has ended", 0)),
        ("raise SystemExit(0)", End("FINISHED", "the script has ended", 0)),
        ("import sys; sys.exit(3)", End("FAILED", "exit code 3", 3)),
        ("raise ValueError('boom')", End("FAILED", "ValueError: boom", 1)),
        ("def f(:", End("FAILED", "SyntaxError: invalid syntax (script.py, line 1)", 1)),
        ("import os; os.abort()", End("FAILED", "killed by SIGABRT", 134)),
    ],
)
def test_an_end_has_its_reason(tmp_path: Path, text: str, end: End) -> None:
    assert run_text(tmp_path, text) == end


def test_a_script_has_its_arguments_and_folder_as_python_gives_them(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "beside.py").write_text("NAME = 'beside'")
    text = "import beside, sys\nprint(__name__, beside.NAME, sys.argv)"
    assert run_text(tmp_path, text, "--a", "1").status == "FINISHED"
    script = str(tmp_path / "script.py")
    assert capfd.readouterr().out == f"__main__ beside {[script, '--a', '1']}\n"


def test_a_traceback_begins_in_the_script_and_ends_with_the_successor(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run_text(tmp_path, "import gym")
    lines = capfd.readouterr().err.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1] == f'  File "{tmp_path}/script.py", line 1, in <module>'
    assert lines[-2] == "ModuleNotFoundError: No module named 'gym'"
    assert lines[-1].startswith("volley: gym is Gymnasium today")


def test_a_script_past_its_limit_is_ended_even_if_it_ignores_sigterm(tmp_path: Path) -> None:
    text = "import signal, time\nsignal.signal(15, signal.SIG_IGN)\ntime.sleep(100)"
    reason = "max_run_duration_seconds: it ran longer than 1.5"
    assert run_text(tmp_path, text, limit_s=1.5) == End("FAILED", reason, 1)


ORPHAN = """
import pathlib, subprocess, time
pid = pathlib.Path({pid!r})
# In a session of its own, and its parent ends at once.
subprocess.run(["sh", "-c", f"setsid sleep 100 > /dev/null 2>&1 & echo $! > {{pid}}"])
"""


def test_processes_that_a_script_leaves_are_ended(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    assert run_text(tmp_path, ORPHAN.format(pid=str(pid))).status == "FINISHED"
    assert not psutil.pid_exists(int(pid.read_text()))


INTERRUPTED = """
import pathlib, time
pathlib.Path({ready!r}).touch()
try:
    time.sleep(100)
except KeyboardInterrupt:
    pathlib.Path({saved!r}).touch()
    raise
"""


def test_a_signal_reaches_the_script_which_may_end_in_order(tmp_path: Path) -> None:
    ready, saved = tmp_path / "ready", tmp_path / "saved"

    def interrupt() -> None:
        wait_for(ready.exists)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    text = INTERRUPTED.format(ready=str(ready), saved=str(saved))
    assert run_text(tmp_path, text) == End("KILLED", "stopped by SIGINT", 130)
    thread.join()
    assert saved.exists()


COUNTING = """
import os, pathlib, signal, time
counted = []
signal.signal(signal.SIGTERM, lambda *_: counted.append(1))
pathlib.Path({ready!r}).write_text(str(os.getpid()))
while not counted:
    time.sleep(0.05)
time.sleep(0.5)
pathlib.Path({signals!r}).write_text(str(len(counted)))
"""


def test_a_script_of_a_job_gets_its_signal_from_ray_alone(tmp_path: Path) -> None:
    ready = tmp_path / "ready"

    def stop_as_ray_does() -> None:
        wait_for(lambda: ready.exists() and ready.read_text())
        for pid in (os.getpid(), int(ready.read_text())):
            os.kill(pid, signal.SIGTERM)

    thread = threading.Thread(target=stop_as_ray_does)
    thread.start()
    text = COUNTING.format(ready=str(ready), signals=str(tmp_path / "signals"))
    # It ends in order, and is not finished: the queue will start it again.
    assert run_text(tmp_path, text, forward=False) == End("KILLED", "stopped by SIGTERM", 143)
    thread.join()
    assert (tmp_path / "signals").read_text() == "1"


def test_a_script_ends_with_a_wrapper_that_is_killed(tmp_path: Path) -> None:
    pid, script = tmp_path / "pid", tmp_path / "script.py"
    script.write_text(
        f"import os, pathlib, time\npathlib.Path({str(pid)!r}).write_text(str(os.getpid()))\n"
        "time.sleep(600)"
    )
    module = "payload.script.child_process"
    code = f"import os, sys, {module} as child; child.run(sys.argv[1:], os.environ)"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}  # It removes nothing when it is killed.
    command = [sys.executable, "-c", code, str(script)]
    with subprocess.Popen(command, env=environment) as wrapper:
        wait_for(lambda: pid.exists() and pid.read_text())
        wrapper.kill()
    wait_for(lambda: not psutil.pid_exists(int(pid.read_text())))


@pytest.fixture
def small_memory() -> Iterator[Path]:
    with memory_group(64) as group:
        yield group


GREEDY = """
import os, pathlib
pathlib.Path({group!r}, "cgroup.procs").write_text(str(os.getpid()))
taken = [bytearray(2**20) for _ in range(2000)]
"""


def test_a_script_that_the_kernel_kills_for_its_memory_is_told_so(
    tmp_path: Path, small_memory: Path
) -> None:
    end = run_text(tmp_path, GREEDY.format(group=str(small_memory)))
    reason = "killed by the kernel: the machine has no memory left"
    assert end == End("FAILED", reason, 128 + signal.SIGKILL)
