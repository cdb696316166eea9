"""An MLflow server behind a proxy that can be unreachable, slow or broken."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Literal

from tests.free_port import free_port
from tests.payload.command_line import WITHOUT_JOBS, wait_for

Mode = Literal["ok", "away", "slow", "broken", "lost"]
SLOW_S = 5.0


class FaultyProxy(ThreadingHTTPServer):
    """A proxy that forwards requests, unless its mode is a fault."""

    daemon_threads = True

    def __init__(self, upstream_port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream_port = upstream_port
        self.mode: Mode = "ok"
        self.faulty_path = ""
        """The mode holds for requests whose path contains this."""

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: FaultyProxy

    def pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        mode = self.server.mode if self.server.faulty_path in self.path else "ok"
        if mode == "away":
            self.close_connection = True  # Close without an answer.
            return
        if mode == "broken":
            self.send_error(500)
            return
        if mode == "slow":
            time.sleep(SLOW_S)
        with closing(HTTPConnection("127.0.0.1", self.server.upstream_port)) as upstream:
            headers = {k: v for k, v in self.headers.items() if k.lower() != "host"}
            upstream.request(self.command, self.path, body, headers)
            answer = upstream.getresponse()
            content = answer.read()
        if mode == "lost":
            self.close_connection = True  # Done, but nobody learns of it.
            return
        with suppress(BrokenPipeError):
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.getheader("Content-Type") or "")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


for _method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
    setattr(_Handler, f"do_{_method}", _Handler.pass_on)


@contextmanager
def faulty_mlflow(folder: Path) -> Iterator[FaultyProxy]:
    """Starts an MLflow server and the proxy in front of it."""
    port = free_port()
    command = [
        *(sys.executable, "-m", "mlflow", "server", "--workers", "1"),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--backend-store-uri", f"sqlite:///{folder}/server.db"),
        *("--artifacts-destination", str(folder / "artifacts")),
    ]
    with (
        (folder / "server.log").open("w") as log,
        subprocess.Popen(
            command, env=WITHOUT_JOBS, stdout=log, stderr=log, start_new_session=True
        ) as server,
        FaultyProxy(port) as proxy,
    ):
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        try:
            wait_for(lambda: _listens(port))
            yield proxy
        finally:
            proxy.shutdown()
            os.killpg(server.pid, signal.SIGTERM)


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False
