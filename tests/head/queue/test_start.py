"""The process that submits an experiment: its exit code says whether another try may succeed."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from ray.exceptions import RaySystemError
from requests import ConnectTimeout

from head.identity.client import IdentityError
from head.queue import start
from payload.errors import TemporaryError, UserError
from tests.head.queue.queue_head import Head, cartpole

pytestmark = pytest.mark.slow

BLOB_IS_AWAY = """\
from head.identity.client import IdentityError
def restore(*_):
    raise IdentityError("Failed to resolve 'account.blob.core.windows.net'\\nmore")
"""


def submits(head: Head, name: str, **variables: str) -> subprocess.CompletedProcess[str]:
    folder = head.experiments / name
    azure = ("RESULTS_CONTAINER", "RESULTS_ACCOUNT", "AZURE_CLIENT_ID", "MLFLOW_TRACKING_URI")
    environment = {**os.environ, **dict.fromkeys(azure, "none"), **head.environment, **variables}
    environment["PYTHONPATH"] = f"{folder}{os.pathsep}{environment['PYTHONPATH']}"
    return subprocess.run(
        [sys.executable, "-m", "head.queue.start", str(folder), "job", "1"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_start_without_blob_ends_at_once_and_says_so_in_one_line(head: Head) -> None:
    head.submit("pong", cartpole())
    head.replace_module("identity/restored_runs.py", BLOB_IS_AWAY)
    done = submits(head, "pong")
    assert done.returncode == os.EX_TEMPFAIL, done.stderr
    assert done.stdout == ("IdentityError: Failed to resolve 'account.blob.core.windows.net'\n")


def test_a_start_without_a_registry_ends_with_its_line(head: Head) -> None:
    head.submit("pong", cartpole() + "pip_packages: [volley-no-such-package]\n")
    registry = {"UV_DEFAULT_INDEX": "http://127.0.0.1:9/simple", "UV_HTTP_RETRIES": "0"}
    done = submits(head, "pong", **registry)
    assert done.returncode == os.EX_TEMPFAIL, done.stderr
    assert "Connection refused" in done.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UserError("env: no such"), 2),
        (TemporaryError("image: the registry does not answer"), 75),
        (IdentityError("Blob is away"), 75),
        (ConnectTimeout("Ray is away"), 75),
        (ConnectionError("Ray is away"), 75),
        (RaySystemError("the raylet is gone"), 75),
        (OSError(errno.ENOSPC, "No space left on device"), 75),
    ],
)
def test_what_is_away_or_full_is_not_the_experiments_mistake(
    monkeypatch: pytest.MonkeyPatch, error: Exception, code: int
) -> None:
    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(start, "_start", fails)
    assert start.main(Path(), "job", 1) == code


def test_a_start_waits_a_moment_for_rays_dashboard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "http://127.0.0.1:9")
    monkeypatch.setattr(start, "DASHBOARD_TIMEOUT_S", 0.1)
    with pytest.raises(ConnectionError):
        start.connect()
