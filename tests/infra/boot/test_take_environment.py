"""take_environment.py against a server that answers as Blob does, including its failures."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import subprocess
import sys
import tarfile
import threading
import urllib.request
from collections.abc import Iterator
from http.client import HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from urllib.parse import urlsplit

import pytest

from head import machine_token
from tests.infra.boot.boot_scripts import load

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="root unpacks as another user"),
]

NAME = "lock"
TOKEN = "/metadata/identity/oauth2/token"


class Blob:
    """The answers of the metadata service and the container `environments`, by path."""

    def __init__(self, archive: bytes) -> None:
        self.sha256 = hashlib.sha256(archive).hexdigest()
        self.archive = f"/environments/{self.sha256}.tar.zst"
        self.answers: dict[str, list[tuple[int, bytes]]] = {
            TOKEN: [(200, b'{"access_token": "token"}')],
            f"/environments/{NAME}": [(200, self.sha256.encode())],
            self.archive: [(200, archive)],
        }
        self.asked: list[str] = []
        self.cut = 0
        """How many downloads of the archive end early."""

    def first(self, path: str, status: int, times: int) -> None:
        """Answers with a status `times` times before the normal answer."""
        self.answers[path][:0] = [(status, b"")] * times

    def answer(self, path: str) -> tuple[int, bytes]:
        self.asked.append(path)
        known = self.answers.get(path, [(404, b"")])
        return known.pop(0) if len(known) > 1 else known[0]


@pytest.fixture
def blob(tmp_path: Path) -> Blob:
    venv = tmp_path / "made/venv"
    venv.mkdir(parents=True)
    (venv / "lock.sha256").write_text("lock")
    command: list[str | Path] = ["tar", "--create", "--zstd"]
    command += ["--directory", tmp_path / "made", "venv"]
    return Blob(subprocess.run(command, capture_output=True, check=True).stdout)


@pytest.fixture
def program(blob: Blob, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The program, with almost no pause between attempts."""
    monkeypatch.setenv("RESULTS_ACCOUNT", "account")
    monkeypatch.setenv("ENVIRONMENT_CONTAINER", "environments")
    monkeypatch.setenv("AZURE_CLIENT_ID", "client")
    program_blob = load("blob")
    monkeypatch.setitem(sys.modules, "blob", program_blob)
    module = load("take_environment")
    module.PAUSE_S = 0.01  # type: ignore[attr-defined]
    module.UNPACKER = "nobody"  # type: ignore[attr-defined]
    with ThreadingHTTPServer(("127.0.0.1", 0), handler(blob)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for asking in (program_blob, machine_token):
            monkeypatch.setattr(asking, "NO_PROXY", There(server.server_port))
        yield module
        server.shutdown()


class There:
    """Redirects every URL to a port of this machine."""

    def __init__(self, port: int) -> None:
        self.server = f"http://127.0.0.1:{port}"

    def open(self, request: urllib.request.Request, timeout: float) -> HTTPResponse:
        parts = urlsplit(request.full_url)
        url = f"{self.server}{parts.path}"
        headers = dict(request.header_items())
        answer: HTTPResponse = urllib.request.urlopen(
            urllib.request.Request(url, headers=headers), timeout=timeout
        )
        return answer


def handler(blob: Blob) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, content = blob.answer(self.path)
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.path == blob.archive and blob.cut:
                blob.cut -= 1
                content = content[: len(content) // 2]
            with contextlib.suppress(OSError):
                self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    return Handler


def test_a_shared_environment_is_unpacked(program: ModuleType, tmp_path: Path) -> None:
    assert program.main(NAME, str(tmp_path / "taken")) == 0
    assert (tmp_path / "taken/venv/lock.sha256").read_text() == "lock"


@pytest.mark.parametrize("status", [404, 410, 429, 500])
def test_a_token_service_that_is_late_is_asked_again(
    program: ModuleType, blob: Blob, tmp_path: Path, status: int
) -> None:
    blob.first(TOKEN, status, 2)
    assert program.main(NAME, str(tmp_path / "taken")) == 0


def test_a_role_that_has_no_effect_yet_is_waited_for(
    program: ModuleType, blob: Blob, tmp_path: Path
) -> None:
    blob.first(f"/environments/{NAME}", 403, 3)
    assert program.main(NAME, str(tmp_path / "taken")) == 0


def test_a_role_that_never_comes_is_waited_for_a_while_only(
    program: ModuleType, blob: Blob, tmp_path: Path
) -> None:
    program.PATIENCE_S = 0.2  # type: ignore[attr-defined]
    blob.answers[f"/environments/{NAME}"] = [(403, b"")]
    assert program.main(NAME, str(tmp_path / "taken")) == 1
    assert blob.asked.count(f"/environments/{NAME}") > 2


def test_an_environment_that_nobody_has_shared_is_asked_for_once(
    program: ModuleType, blob: Blob, tmp_path: Path
) -> None:
    assert program.main("other", str(tmp_path / "taken")) == 1
    assert blob.asked == [TOKEN, "/environments/other"]


def test_a_connection_that_ends_early_is_made_again(
    program: ModuleType, blob: Blob, tmp_path: Path
) -> None:
    blob.cut = 2
    assert program.main(NAME, str(tmp_path / "taken")) == 0
    assert blob.asked.count(blob.archive) == 3
    assert (tmp_path / "taken/venv/lock.sha256").read_text() == "lock"


def test_another_content_than_the_head_has_packed_is_not_used(
    program: ModuleType, blob: Blob, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ((status, archive),) = blob.answers[blob.archive]
    blob.answers[blob.archive] = [(status, archive + b"\0")]
    assert program.main(NAME, str(tmp_path / "taken")) == 1
    assert f"{blob.sha256}.tar.zst has another hash" in capsys.readouterr().out
    assert not (tmp_path / "taken").exists()
    assert blob.asked.count(blob.archive) == 1


def test_what_is_unpacked_belongs_to_root(program: ModuleType, tmp_path: Path) -> None:
    assert program.main(NAME, str(tmp_path / "taken")) == 0
    taken = [tmp_path / "taken", *(tmp_path / "taken").rglob("*")]
    assert {(path.lstat().st_uid, path.lstat().st_gid) for path in taken} == {(0, 0)}


def member(name: str, **changes: object) -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    for attribute, value in changes.items():
        setattr(found, attribute, value)
    return found


@pytest.mark.parametrize(
    "bad",
    [
        member("venv/disk", type=tarfile.BLKTYPE, devmajor=8),
        member("../outside"),
        member("venv/passwd", type=tarfile.LNKTYPE, linkname="../../../../../../etc/passwd"),
    ],
    ids=["device", "outside", "hard link"],
)
def test_an_archive_with_more_than_files_and_folders_is_refused(
    program: ModuleType, tmp_path: Path, bad: tarfile.TarInfo
) -> None:
    assert program.main(NAME, str(tmp_path / "taken")) == 0
    with pytest.raises(program.NotSharedError):
        unpack(program, tmp_path, bad)
    assert not (tmp_path / "outside").exists()


@pytest.mark.parametrize(
    "bad",
    [member("/absolute"), member("own", uid=1234, gid=1234), member("su", mode=0o6755)],
    ids=["absolute", "owner", "setuid"],
)
def test_absolute_names_owners_and_setuid_of_the_archive_do_not_count(
    program: ModuleType, tmp_path: Path, bad: tarfile.TarInfo
) -> None:
    unpack(program, tmp_path, bad)
    taken = tmp_path / "taken" / bad.name.lstrip("/")
    assert taken.is_file()
    assert taken.stat().st_uid == 0
    assert taken.stat().st_mode & 0o6000 == 0
    assert not Path("/absolute").exists()


def test_a_link_does_not_lead_a_later_member_out_of_the_folder(
    program: ModuleType, tmp_path: Path
) -> None:
    (tmp_path / "outside").mkdir(mode=0o777)
    (tmp_path / "outside").chmod(0o777)
    link = member("venv", type=tarfile.SYMTYPE, linkname=str(tmp_path / "outside"))
    with contextlib.suppress(program.NotSharedError):
        unpack(program, tmp_path, link, member("venv/file"))
    assert not (tmp_path / "outside/file").exists()


def unpack(program: ModuleType, folder: Path, *members: tarfile.TarInfo) -> None:
    """Packs members and unpacks them into folder/taken."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as tar:
        for one in members:
            tar.addfile(one)
    archive = folder / "archive.tar.zst"
    command: list[str | Path] = ["zstd", "--quiet", "--force", "-o", archive]
    subprocess.run(command, input=plain.getvalue(), check=True)
    with archive.open("rb") as file:
        program.unpack(file, str(folder / "taken"))
