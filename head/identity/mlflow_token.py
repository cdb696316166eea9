"""Tokens for MLflow's server, of an identity that may use the results' container and nothing else.

mlflow.service names this address to azure-identity. A port below 1024 takes a right that ray has
not: no experiment can answer in its place. nftables lets the user mlflow connect, and nobody else:
metadata.nft.
"""

from __future__ import annotations

import os
import threading
from http import HTTPStatus
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.error import HTTPError
from urllib.parse import parse_qs, urlsplit

from ..machine_token import metadata

ADDRESS = ("127.0.0.1", 1010)
PATH = "identity/oauth2/token"
STORAGE = "https://storage.azure.com"


def start() -> None:
    """Serves in a thread; raises OSError if the port is taken."""
    server = ThreadingHTTPServer(ADDRESS, Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()


class Handler(BaseHTTPRequestHandler):
    timeout = 30

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        (resource,) = parse_qs(asked.query).get("resource", [""])[:1]
        # The header keeps away requests that a server was led to make.
        if asked.path != f"/metadata/{PATH}" or self.headers["Metadata"] != "true":
            self._send(HTTPStatus.NOT_FOUND, b"")
        elif resource.rstrip("/") != STORAGE:
            self._send(HTTPStatus.FORBIDDEN, b'{"error": "only for the results"}')
        else:
            self._send(*mlflow_answer())

    def log_message(self, *_: object) -> None:
        """Logs nothing."""

    def _send(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def mlflow_answer() -> tuple[int, bytes]:
    """Returns what the metadata service answers."""
    query = {"api-version": "2018-02-01", "resource": STORAGE}
    try:
        return HTTPStatus.OK, metadata(PATH, **query, client_id=os.environ["MLFLOW_CLIENT_ID"])
    except HTTPError as error:
        with error:
            return error.code, error.read()
    except (OSError, HTTPException):
        return HTTPStatus.SERVICE_UNAVAILABLE, b""
