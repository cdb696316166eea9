"""When the machines' Python environment is made again."""

from __future__ import annotations

import subprocess
from pathlib import Path

from rehearsal.set_up.python_environment import lock_digest


def test_the_lock_digest_is_the_one_that_the_machines_compute(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("ray==2.60.0\n")
    said = subprocess.check_output(["sha256sum"], input=b"ray==2.60.0\n")
    assert lock_digest((tmp_path / "lock").read_bytes()) == said.decode().split()[0]
