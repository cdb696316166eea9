"""The HTTP servers of the stand-in: one thread for each connection, with or without TLS."""

from __future__ import annotations

import json
import ssl
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingTCPServer
from typing import Any


@dataclass(frozen=True)
class Answer:
    status: int
    body: Any = None
    """Text, or a value to send as JSON; nothing is sent for None."""
    headers: Mapping[str, str] = field(default_factory=dict)


class Server(ThreadingTCPServer):
    """Not http.server.HTTPServer, which looks up the address's name."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 64

    def use_tls(self, folder: Path) -> None:
        """Serves with the certificate that is in the folder."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "server.pem", folder / "server.key")
        # Each connection's thread does its own handshake: a slow client delays no other.
        self.socket = context.wrap_socket(
            self.socket, server_side=True, do_handshake_on_connect=False
        )


class Handler(BaseHTTPRequestHandler, ABC):
    """Handles the requests of one connection, of any method, in `respond`."""

    protocol_version = "HTTP/1.1"
    timeout = 60
    """Seconds after which an idle connection is closed."""

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.respond({name.title(): value for name, value in self.headers.items()}, body)

    do_HEAD = do_PUT = do_PATCH = do_POST = do_DELETE = do_GET  # noqa: N815

    @abstractmethod
    def respond(self, headers: Mapping[str, str], body: bytes) -> None:
        """Answers a request; names of headers are written As-This."""

    def send(self, answer: Answer) -> None:
        is_text = isinstance(answer.body, str)
        text = str(answer.body) if is_text else json.dumps(answer.body)
        content = b"" if answer.body is None else text.encode()
        kind = "text/plain" if is_text else "application/json"
        headers = {"Content-Type": f"{kind}; charset=utf-8", **answer.headers}
        self.send_response(answer.status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)
