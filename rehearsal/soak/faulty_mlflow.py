"""A proxy on the head between MLflow and its clients.

python -m rehearsal.soak.faulty_mlflow PORT UPSTREAM_PORT busy|lost
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import closing
from http.client import HTTPConnection
from typing import ClassVar

from rehearsal.azure.http_server import Answer, Handler, Server

LOOPBACK = "127.0.0.1"
TIMEOUT_S = 60


class _Handler(Handler):
    upstream_port: ClassVar[int]
    mode: ClassVar[str]

    def respond(self, headers: Mapping[str, str], body: bytes) -> None:
        if self.mode == "busy":
            self.send(Answer(503, "Service Unavailable"))
            return
        with closing(HTTPConnection(LOOPBACK, self.upstream_port, timeout=TIMEOUT_S)) as upstream:
            upstream.request(self.command, self.path, body, dict(headers))
            upstream.getresponse().read()
        self.close_connection = True

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Logs nothing."""


def serve(port: int, upstream_port: int, mode: str) -> None:
    _Handler.upstream_port, _Handler.mode = upstream_port, mode
    with Server((LOOPBACK, port), _Handler) as server:
        server.serve_forever()


if __name__ == "__main__":
    serve(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
