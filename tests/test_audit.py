"""`make audit`, with the real uv: the locks' packages are looked up in a database on loopback."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.project import ROOT

UV = Path(sys.executable).with_name("uv")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not UV.exists(), reason=f"{UV} is missing"),
]

NAME, VERSION = "harmless", "1.2"
ADVISORY = {
    "id": "GHSA-1111-2222-3333",
    "aliases": ["CVE-2026-1"],
    "modified": "2026-01-01T00:00:00Z",
    "published": "2026-01-01T00:00:00Z",
    "summary": "it is not harmless",
    "affected": [{"package": {"name": NAME, "ecosystem": "PyPI"}, "versions": [VERSION]}],
}


class Database(BaseHTTPRequestHandler):
    """OSV's API (https://google.github.io/osv.dev/api/) with one vulnerability."""

    asked: list[str]
    status = 200

    def do_POST(self) -> None:
        queries = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["queries"]
        names = [query["package"]["name"] for query in queries]
        self.asked += names
        self._send({"results": [{"vulns": [ADVISORY]} if name == NAME else {} for name in names]})

    def do_GET(self) -> None:
        self._send(ADVISORY)

    def _send(self, answer: dict[str, Any]) -> None:
        self.send_response(self.status)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def database() -> Iterator[str]:
    Database.asked, Database.status = [], 200
    with ThreadingHTTPServer(("127.0.0.1", 0), Database) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone with a lock of laptops and one of machines, and the wheels of both."""
    for name in (".ci/audit", "pyproject.toml", "infra/boot/cloud_config.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / ".venv").symlink_to(UV.parents[1])
    (tmp_path / "requirements").mkdir()
    (tmp_path / "wheels").mkdir()
    lock(tmp_path, "dev", "harmless==1.2 ; sys_platform == 'linux' \\\n    --hash=sha256:0\n")
    lock(tmp_path, "machine", "other-one==3 --hash=sha256:0\n")
    wheel(tmp_path / "wheels", NAME, VERSION)
    wheel(tmp_path / "wheels", "other_one", "3")
    exceptions(tmp_path, "")
    return tmp_path


def lock(clone: Path, name: str, text: str) -> None:
    (clone / f"requirements/{name}.txt").write_text(text)


def wheel(folder: Path, name: str, version: str) -> None:
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{name}-{version}.dist-info/METADATA", metadata)
        archive.writestr(f"{name}-{version}.dist-info/WHEEL", "Wheel-Version: 1.0\n")


def exceptions(clone: Path, text: str) -> None:
    (clone / ".ci/audit-exceptions.txt").write_text(f"# exceptions\n{text}")


def audit(clone: Path, database: str) -> subprocess.CompletedProcess[str]:
    settings = {"UV_NO_INDEX": "1", "UV_FIND_LINKS": str(clone / "wheels"), "UV_HTTP_RETRIES": "0"}
    return subprocess.run(
        [clone / ".ci/audit", "--service-url", database],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_known_vulnerability_fails_and_every_lock_is_audited(clone: Path, database: str) -> None:
    done = audit(clone, database)
    assert done.returncode == 1, done.stderr
    assert f"{ADVISORY['id']}: {ADVISORY['summary']}" in done.stdout
    assert Database.asked == [NAME, "other-one"]


def test_an_exception_with_a_reason_passes(clone: Path, database: str) -> None:
    exceptions(clone, "CVE-2026-1 nobody calls it\n")
    done = audit(clone, database)
    assert done.returncode == 0, done.stderr
    assert "NOT AUDITED" not in done.stderr


def test_an_exception_without_a_reason_is_refused(clone: Path, database: str) -> None:
    exceptions(clone, "CVE-2026-1\n")
    done = audit(clone, database)
    assert done.returncode == 2
    assert "CVE-2026-1: give the reason" in done.stderr
    assert not Database.asked


def test_a_database_that_does_not_answer_is_reported_and_fails_nothing(clone: Path) -> None:
    done = audit(clone, "http://127.0.0.1:9/")
    assert done.returncode == 0
    assert "audit: NOT AUDITED" in done.stderr


def test_a_database_that_is_overloaded_is_reported_too(clone: Path, database: str) -> None:
    Database.status = 503
    done = audit(clone, database)
    assert done.returncode == 0
    assert "audit: NOT AUDITED" in done.stderr


def test_a_lock_that_cannot_be_resolved_fails(clone: Path, database: str) -> None:
    lock(clone, "dev", "harmless==9 \\\n    --hash=sha256:0\n")
    done = audit(clone, database)
    assert done.returncode != 0
    assert "No solution found" in done.stderr
