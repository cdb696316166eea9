"""Ray leaves a folder in /tmp/ray at each start; a machine that starts Ray again removes them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from infra.boot.cloud_config import FILES, Role
from tests.infra.boot.boot_scripts import Machine
from tests.infra.boot.machine_tree import ROLES, machine, write_tree
from tests.infra.boot.test_units import variables

pytestmark = pytest.mark.slow

SESSIONS = [f"session_2026-01-0{day}_00-00-00_0_1" for day in (1, 2, 3)]


def start_ray(root: Path, role: Role) -> list[str]:
    """Runs what starts Ray, with stubs of Ray and Python; returns what is in /tmp/ray then."""
    host = Machine(root)
    for name in ("ray", "python"):
        host.write(f"opt/volley/venv/bin/{name}", "#!/bin/sh\n").chmod(0o755)
    host.write("etc/volley/cluster-settings.json", "{}")
    host.write("etc/volley/vm-name", "worker0\n")
    script = (FILES / role / f"usr/local/lib/volley/start-ray-{role}").read_text()
    done = host.run(script, {"RAY_START_FLAGS": "--port=1"})
    assert (done.returncode, done.stderr) == (0, "")
    return sorted(path.name for path in (root / "tmp/ray").glob("*"))


@pytest.mark.parametrize("role", ROLES)
def test_only_the_last_session_stays(tmp_path: Path, role: Role) -> None:
    sessions = tmp_path / "tmp/ray"
    for name in SESSIONS:
        (sessions / name / "logs").mkdir(parents=True)
    # The first may have the latest change: its workers ended last.
    os.utime(sessions / SESSIONS[0])
    (sessions / "session_latest").symlink_to(f"/tmp/ray/{SESSIONS[2]}")
    (sessions / "other").touch()
    assert start_ray(tmp_path, role) == ["other", SESSIONS[2], "session_latest"]


@pytest.mark.parametrize("role", ROLES)
def test_a_first_start_finds_nothing_to_remove(tmp_path: Path, role: Role) -> None:
    assert start_ray(tmp_path, role) == []


@pytest.mark.parametrize("role", ROLES)
def test_rays_own_logs_and_packages_are_bounded(tmp_path: Path, role: Role) -> None:
    found = variables(write_tree(machine(role), tmp_path), f"ray-{role}.service")
    assert int(found["RAY_ROTATION_MAX_BYTES"]) == 100 * 10**6
    assert found["RAY_ROTATION_BACKUP_COUNT"] == "1"
    assert found["RAY_RUNTIME_ENV_WORKING_DIR_CACHE_SIZE_GB"] == "2"
