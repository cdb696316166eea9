"""A server that takes notifications, as a chat's webhook does."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PATH = "/services/T0KEN/s3cret"
"""The part of the URL that nobody else may read."""


class Receiver:
    """What arrived, and how the next requests are answered."""

    def __init__(self, host: str) -> None:
        self.received: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.answers: list[int | None] = []
        """Statuses of the next answers; None closes the connection without one; then 200."""
        self.released = threading.Event()
        """While it is not set, no request is answered."""
        self.released.set()
        self.host = host
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.received.append(json.loads(body))
                receiver.headers.append({**self.headers, "path": self.path})
                receiver.released.wait()
                status = receiver.answers.pop(0) if receiver.answers else 200
                if status is None:
                    return
                self.send_response(status)
                self.send_header("Location", "http://127.0.0.1:1/elsewhere")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            block_on_close = False

            def handle_error(self, *_: Any) -> None:
                pass  # A client that has gone away.

        self.server = Server((host, 0), Handler)

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.server.server_port}{PATH}"


@contextmanager
def receiving(host: str = "127.0.0.1") -> Iterator[Receiver]:
    receiver = Receiver(host)
    thread = threading.Thread(target=receiver.server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        receiver.released.set()
        receiver.server.shutdown()
        receiver.server.server_close()
        thread.join()


def own_address() -> str:
    """Returns an address of this machine that is not loopback: no cluster notifies loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("198.51.100.1", 9))  # Sends nothing.
        return str(probe.getsockname()[0])
