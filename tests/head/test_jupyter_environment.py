"""JupyterLab's environment sees the cluster's, and is made again only for another lock."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.head.installed_head import InstalledHead

pytestmark = pytest.mark.slow

UV = Path(sys.executable).with_name("uv")


def make(head: InstalledHead) -> int:
    command = [sys.executable, "-m", "head.jupyter_environment"]
    return subprocess.run(command, env=head.environment, cwd=head.root, check=False).returncode


@pytest.fixture
def head(tmp_path: Path) -> InstalledHead:
    """A head with a cluster's environment, and with an empty lock: no registry is asked."""
    if not UV.exists():
        pytest.skip("uv is not installed beside this Python")
    head = InstalledHead(tmp_path)
    cluster = tmp_path / "opt/volley/venv"
    shutil.rmtree(cluster)
    subprocess.run([UV, "venv", "--quiet", "--python", sys.executable, cluster], check=True)
    (cluster / "bin/uv").symlink_to(UV)
    (packages,) = cluster.glob("lib/python*/site-packages")
    (packages / "of_cluster.py").touch()
    (head.software / "head/jupyter.txt").write_text("")
    return head


def test_a_kernel_imports_what_the_cluster_has(head: InstalledHead) -> None:
    assert make(head) == 0
    python = head.root / "opt/volley/jupyter/bin/python"
    subprocess.run([python, "-c", "import of_cluster"], check=True)


def test_it_is_made_again_for_another_lock_only(head: InstalledHead) -> None:
    assert make(head) == 0
    mark = head.root / "opt/volley/jupyter/mine"
    mark.touch()
    assert make(head) == 0
    assert mark.exists()
    (head.software / "head/jupyter.txt").write_text("# Another one.\n")
    assert make(head) == 0
    assert not mark.exists()


def test_a_failed_installation_is_not_taken_for_a_whole_one(head: InstalledHead) -> None:
    lock = head.software / "head/jupyter.txt"
    lock.write_text("jupyterlab==4.6.6\n")  # Without a hash.
    assert make(head) == 1
    assert make(head) == 1
