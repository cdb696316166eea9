"""Settings, fixtures and hooks of all tests."""

from __future__ import annotations

import os
import platform
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator

import hypothesis
import pytest

from tests.leftovers import Leftovers
from tests.local_ray import leave_local_ray, local_ray

# Use the same examples in every run: a passing test keeps passing until the code changes.
hypothesis.settings.register_profile("volley", deadline=None, derandomize=True)
hypothesis.settings.load_profile("volley")

SLOW_EVENTS = frozenset(
    ["subprocess.Popen", "os.fork", "os.posix_spawn", "os.system", "socket.connect"]
)
"""Python's audit events (PEP 578) of starting a process and of opening a connection."""
LONG = frozenset(
    [
        "test_scale",
        "test_interrupted",
        "test_engine",
        "test_queue",
        "test_rehearsal",
        "test_real_ray",
        "test_wheel",
    ]
)
"""Files that take a minute or more, besides the end-to-end tests.

test_scale comes first of all: after other tests an env runner of its cluster did not start, twice.
"""
# Checkpoints are signed with a key of the user; the tests have one of their own.
os.environ.setdefault("VOLLEY_HOME", f"{tempfile.gettempdir()}/volley-tests-{os.getuid()}")
# Several tests may each start a Ray at the same time, from a cold disk.
os.environ.setdefault("RAY_gcs_server_port_wait_time_s", "120")
# Ray would start a process for each of its CPUs at once; most tests use none of them.
os.environ.setdefault("RAY_prestart_worker_first_driver", "0")
# A script's background job ignores Ctrl-C, and so would every process that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Under nohup they would also ignore SIGHUP. Child processes do not inherit a handler.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)
this_thread = threading.local()
LEFTOVERS = pytest.StashKey[Leftovers]()
LEFT = pytest.StashKey[list[str]]()
platform.processor()  # Libraries call it on import; Python runs `uname` only once.


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the longest files first: `make test` gives files to processes in this order."""
    items.sort(
        key=lambda item: not (item.path.stem.endswith("end_to_end") or item.path.stem in LONG)
    )


@pytest.fixture(scope="module", autouse=True)
def environment_of_this_file() -> Iterator[None]:
    """Restores the environment variables after each file: MLflow's settings are some of them."""
    environment = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(environment)


@pytest.fixture(scope="module")
def ray_here() -> None:
    """Starts Ray in this process and waits until its CPUs are free."""
    local_ray()


def pytest_configure(config: pytest.Config) -> None:
    # This process watches the whole run, including xdist's workers.
    if not hasattr(config, "workerinput"):
        whole_suite = bool(config.getoption("numprocesses", None))
        config.stash[LEFTOVERS] = Leftovers(network=whole_suite)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fails the run if it leaves something behind."""
    leave_local_ray()
    if LEFTOVERS in session.config.stash:
        left = session.config.stash[LEFTOVERS].found()
        session.config.stash[LEFT] = left
        if left:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_unconfigure(config: pytest.Config) -> None:
    """Says what was left behind below everything else: the end of a log is what is read."""
    if left := config.stash.get(LEFT, []):
        print("left behind by the tests:", *left, sep="\n")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    this_thread.runs_quick_test = item.get_closest_marker("slow") is None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown() -> None:
    this_thread.runs_quick_test = False


def keep_quick_tests_quick(event: str, arguments: tuple[object, ...]) -> None:
    # matplotlib lists a new machine's fonts once.
    if arguments[:1] == ("fc-list",):
        return
    if event in SLOW_EVENTS and getattr(this_thread, "runs_quick_test", False):
        pytest.fail(f"{event}{arguments!r:.200}: needs @pytest.mark.slow")


sys.addaudithook(keep_quick_tests_quick)
