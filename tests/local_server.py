"""HTTP servers on loopback that answer GET and HEAD as a test says."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[[str, Message], tuple[int, str, bytes]]
"""Takes the path with its query, and the headers; returns status, media type and content."""


@contextmanager
def local_server(answer: Answer) -> Iterator[str]:
    """Starts a server and yields its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, media_type, content = answer(self.path, self.headers)
            self.send_response(status)
            self.send_header("Content-Type", media_type)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

        def do_HEAD(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def json_server(
    answer: Callable[[str, Message], tuple[int, Any]],
) -> AbstractContextManager[str]:
    """Starts a server that sends its answers as JSON; yields its address."""

    def as_json(path: str, headers: Message) -> tuple[int, str, bytes]:
        status, body = answer(path, headers)
        return status, "application/json", json.dumps(body).encode()

    return local_server(as_json)
