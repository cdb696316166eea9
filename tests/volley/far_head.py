"""A head whose loopback has pages that a tunnel leads to."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tests.free_port import free_port
from tests.volley.head import SSHD, LocalHead, kill_tree, program, until

if TYPE_CHECKING:
    from tests.volley.conftest import Laptop

SERVE = """
import http.server, sys
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"a page of the head")
    def log_message(self, *_):
        pass
server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Page)
print("ready", flush=True)
server.serve_forever()
"""


class FarHead(LocalHead):
    """A head with its own loopback: a network namespace, reached through ProxyCommand."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.port = free_port()
        serve = f"ip link set lo up && exec {sys.executable} -c '{SERVE}' {self.port}"
        start = ["unshare", "--net", "sh", "-c", serve]
        self.pages = subprocess.Popen(start, stdout=subprocess.PIPE, text=True)
        assert self.pages.stdout
        with self.pages.stdout as ready:  # Until then, other processes are in the namespace.
            assert ready.readline() == "ready\n"
        self.sshd = folder / "programs" / "sshd"
        (folder / "ssh_config").write_text(
            f"Host far\n  IdentityFile {self.key}\n  ProxyCommand {self.sshd}\n"
        )

    @property
    def login(self) -> str:
        return f"ssh -F {self.folder / 'ssh_config'} root@far"

    def start(self) -> None:
        enter = f"nsenter --target {self.pages.pid} --net"
        program(self.sshd, f"exec {enter} {SSHD} -i -E {self.log} -f {self.settings()}")

    def stop(self) -> None:
        program(self.sshd, "exit 1")
        for pid in sharing_network(self.pages.pid):
            kill_tree(pid)


def sharing_network(pid: int) -> list[int]:
    """Returns the other processes in a process's network namespace."""
    namespace = os.readlink(f"/proc/{pid}/ns/net")
    found = []
    for link in Path("/proc").glob("[0-9]*/ns/net"):
        with suppress(OSError):  # It has ended.
            if os.readlink(link) == namespace:
                found.append(int(link.parts[2]))
    return [other for other in found if other != pid]


class Output:
    """The output of a process, in a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    @property
    def text(self) -> str:
        return self.file.read_text()


@contextmanager
def tunnel(
    laptop: Laptop, verb: str, *options: str
) -> Iterator[tuple[subprocess.Popen[str], Output]]:
    output = Output(laptop.folder / "output")
    with output.file.open("w") as file:
        words = (verb, "--no-browser", *options)
        process = laptop.start(*words, stdout=file, stderr=subprocess.STDOUT)
    try:
        until(lambda: "Ctrl-C closes the tunnel" in output.text or process.poll() is not None)
        yield process, output
    finally:
        process.terminate()
        process.wait(timeout=60)


def read(port: int, path: str = "") -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=5) as page:
        content: bytes = page.read()
        return content
