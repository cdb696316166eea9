"""The payload's wheel, unpacked as on the head: everything is in it, and it runs from there."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from infra.training import build_wheel
from tests.project import ROOT


@pytest.fixture
def unpacked(tmp_path: Path) -> Path:
    name, content = build_wheel(ROOT)
    (tmp_path / name).write_bytes(content)
    folder = tmp_path / "training"
    zipfile.ZipFile(tmp_path / name).extractall(folder)
    return folder


def files(folder: Path) -> set[str]:
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_wheel_has_every_file_of_the_payload(unpacked: Path) -> None:
    assert files(unpacked / "payload") == files(ROOT / "payload")


@pytest.mark.slow
def test_the_payload_runs_from_the_wheel(unpacked: Path) -> None:
    code = "import payload.cli; print(payload.cli.__file__); payload.cli.main(['--help'])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=unpacked, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{unpacked}/payload/")
