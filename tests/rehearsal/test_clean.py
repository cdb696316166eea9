"""The clean-up removes everything that a rehearsal leaves."""

from __future__ import annotations

import subprocess
import sys

import psutil
import pytest

from rehearsal.clean import end_providers

pytestmark = pytest.mark.slow


def test_a_provider_whose_engine_was_killed_is_ended() -> None:
    code = "import time; print(flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code, "some.provider"], stdout=-1) as orphan:
        assert orphan.stdout is not None
        orphan.stdout.readline()
        end_providers("some.provider")
        assert not psutil.pid_exists(orphan.pid)
