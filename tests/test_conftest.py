"""`make quick` runs every test that is not marked slow; such a test cannot start a process."""

from __future__ import annotations

import subprocess
import sys

import pytest


def test_a_quick_test_cannot_start_a_process() -> None:
    with pytest.raises(pytest.fail.Exception, match=r"needs @pytest\.mark\.slow"):
        subprocess.run([sys.executable, "--version"], check=True)


@pytest.mark.slow
def test_a_slow_test_can() -> None:
    subprocess.run([sys.executable, "--version"], check=True, capture_output=True)
