"""make-python-environment with the real uv, and a package registry that misbehaves."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from email.message import Message
from io import BytesIO
from pathlib import Path

import pytest

from infra.boot.cloud_config import FILES
from rehearsal.azure.resources.refusals import TIME_FACTOR
from tests.infra.boot.boot_scripts import SCRIPTS, Machine
from tests.local_server import local_server

UV = Path(sys.executable).with_name("uv")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not UV.exists(), reason=f"{UV} is missing"),
]

SCRIPT = FILES / "common" / SCRIPTS / "make-python-environment"
PYTHON3 = """\
# python3 -m pip install --target FOLDER; no environment is shared yet.
[[ $1 == -m ]] || exit 1
while [[ $1 != --target ]]; do shift; done
mkdir -p "$2/bin"
ln -sf "$PWD/bin/uv" "$2/bin"
"""
AWAY_S = 120 / TIME_FACTOR
WHEEL = "ray-2.60.0-py3-none-any.whl"


class Registry:
    """A registry with one package, `ray`, whose command prints its version."""

    def __init__(self) -> None:
        self.away_until = 0.0
        """The time until which it answers 503."""
        self.wheel = _wheel()
        self.sha256 = hashlib.sha256(self.wheel).hexdigest()

    def answer(self, path: str, _: Message) -> tuple[int, str, bytes]:
        if time.monotonic() < self.away_until:
            return 503, "text/plain", b"Service Unavailable"
        if path == "/simple/ray/":
            return 200, "text/html", f'<a href="/{WHEEL}">{WHEEL}</a>'.encode()
        if path == f"/{WHEEL}":
            return 200, "application/octet-stream", self.wheel
        return 404, "text/plain", b""


@pytest.fixture
def registry() -> Registry:
    return Registry()


@pytest.fixture
def index(registry: Registry) -> Iterator[str]:
    """The registry's address."""

    with local_server(registry.answer) as server:
        yield f"{server}/simple"


class Booting(Machine):
    """A machine that wants `ray` from the registry."""

    def __init__(self, root: Path, index: str, sha256: str) -> None:
        super().__init__(root)
        self.index = index
        self.command("python3", PYTHON3)
        self.command("uv", f'exec {UV} "$@"')
        self.write("etc/volley/apt-packages.txt", "")
        self.write("etc/volley/uv.txt", "")
        self.write("etc/volley/pip-packages.txt", "")
        self.write("etc/volley/requirements.txt", f"ray==2.60.0 --hash=sha256:{sha256}\n")

    def make(self) -> subprocess.CompletedProcess[str]:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        return self.run(
            SCRIPT.read_text(),
            {
                "PYTHON_VERSION": version,
                "UV_DEFAULT_INDEX": self.index,
                "UV_PYTHON": sys.executable,
            },
        )


def test_a_registry_that_was_away_for_two_minutes_delays_a_boot(
    tmp_path: Path, registry: Registry, index: str
) -> None:
    machine = Booting(tmp_path, index, registry.sha256)
    registry.away_until = time.monotonic() + AWAY_S
    codes: list[int] = []
    while 0 not in codes:
        done = machine.make()
        codes.append(done.returncode)
        # systemd restarts it after any other exit code.
        assert done.returncode != 78, done.stderr
    assert time.monotonic() > registry.away_until
    assert "is ready: ray==2.60.0" in done.stdout


def test_a_file_that_is_not_the_locked_one_is_final_and_named(
    tmp_path: Path, registry: Registry, index: str
) -> None:
    machine = Booting(tmp_path, index, "0" * 64)
    done = machine.make()
    assert done.returncode == 78
    assert "Hash mismatch for `ray==2.60.0`" in done.stderr
    assert registry.sha256 in done.stderr
    assert not list(tmp_path.glob("opt/volley/venv/bin/ray"))


def _wheel() -> bytes:
    files = {
        "ray_says.py": "def main():\n    print('ray, version 2.60.0')\n",
        "ray-2.60.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: ray\nVersion: 2.60.0\n",
        "ray-2.60.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: here\n"
        "Root-Is-Purelib: true\nTag: py3-none-any\n",
        "ray-2.60.0.dist-info/entry_points.txt": "[console_scripts]\nray = ray_says:main\n",
    }
    record = "".join(f"{name},,\n" for name in [*files, "ray-2.60.0.dist-info/RECORD"])
    content = BytesIO()
    with zipfile.ZipFile(content, "w") as wheel:
        for name, text in {**files, "ray-2.60.0.dist-info/RECORD": record}.items():
            wheel.writestr(name, text)
    return content.getvalue()
