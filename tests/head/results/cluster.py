"""A head with head/results.py, a real Blob service (Azurite), and a network between them."""

from __future__ import annotations

import gzip
import json
import socket
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from infra.stack.identity import BLOB_DATA_CONTRIBUTOR
from rehearsal.azure.blob.blob_proxy import Access
from rehearsal.azure.blob.blob_storage import BlobStorage
from rehearsal.azure.metadata.managed_identity import access_token
from rehearsal.azure.metadata.metadata_state import Identity
from rehearsal.azure.resources.roles import RoleAssignment
from tests.head.relocated import relocated

KEY = "0123456789ab"
"""The key of an experiment."""
HOST = "results.blob.core.windows.net"
HEAD_ACCESS = Access(
    {"results": "/account"}, (RoleAssignment("principal", BLOB_DATA_CONTRIBUTOR, "/account", 0),)
)


class Cluster:
    """A head with head/results.py, and the results account."""

    def __init__(self, storage: BlobStorage, container: str, root: Path) -> None:
        self.home, self._storage, self._container = root / "var/lib/volley", storage, container
        (self.home / "runs").mkdir(parents=True)
        self.state = root / "var/lib/volley-identity"
        self.database = root / "var/lib/volley-mlflow/mlflow.db"
        for folder in (self.state, self.database.parent):
            folder.mkdir()
        self.results: ModuleType = relocated("head.results", root, "head.disk")
        self._restored: ModuleType = relocated("head.identity.restored_runs", root)
        vars(self._restored)["connect"] = self._serve_archive
        self.before_request: Callable[[Any], None] = lambda _: None
        self.after_request: Callable[[Any], None] = lambda _: None
        self.token = Token()
        self.blobs = self._connect()

    def _connect(self) -> Any:
        from azure.core.pipeline.transport import RequestsTransport
        from azure.storage.blob import ContainerClient

        cluster = self
        where = f"https://{self._storage.address}:{self._storage.port}"

        class Transport(RequestsTransport):
            """The network, with the faults that a test injects."""

            def send(self, request: Any, **options: Any) -> Any:
                cluster.before_request(request)
                request.url = request.url.replace(f"https://{HOST}", where)
                request.headers["Host"] = HOST
                answer = super().send(request, **options)
                try:
                    cluster.after_request(request)
                except Exception:
                    answer.internal_response.close()
                    raise
                return answer

        return ContainerClient(
            *(f"https://{HOST}", self._container, self.token),
            transport=Transport(connection_verify=str(self._storage.ca_certificate)),
            retry_total=0,
        )

    def save(self, at_once: bool = True) -> bool:
        outcome = self.results.save(self.blobs, at_once)
        return bool(outcome == self.results.Outcome.SAVED)

    def restore_runs(self, key: str = KEY) -> None:
        """Restores runs as Ray's user does; raises IdentityError."""
        self._restored.restore(key)

    def _serve_archive(self, _: float) -> socket.socket:
        """Answers a request for an archive as head/identity/server.py does."""
        own, other = socket.socketpair()

        def serve() -> None:
            with other, other.makefile("rwb") as stream:
                key = json.loads(stream.readline())["key"]
                with suppress(OSError):
                    self.results.export(self.blobs, key, stream)

        threading.Thread(target=serve, daemon=True).start()
        return own

    def write_run(self, path: str, text: str) -> Path:
        file = self.home / "runs" / KEY / "runs" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def log_metric(self, value: int) -> None:
        with closing(sqlite3.connect(self.database)) as database, database:
            database.execute("create table if not exists metrics (value)")
            database.execute("insert into metrics values (?)", [value])

    def lose_once(self, method: str, name: str) -> None:
        """Drops the answer to the next request with this method and name."""
        from azure.core.exceptions import ServiceResponseError

        def lose(request: Any) -> None:
            if request.method == method and name in request.url:
                self.after_request = lambda _: None
                raise ServiceResponseError("connection reset")

        self.after_request = lose

    def saved_metrics(self) -> list[int]:
        return self.metrics_of("mlflow.db.gz")

    def metrics_of(self, blob: str) -> list[int]:
        copy = self.home / "downloaded.db"
        packed = self._storage.read("results", self._container, blob)
        copy.write_bytes(gzip.decompress(packed))
        with closing(sqlite3.connect(copy)) as database:
            return [value for (value,) in database.execute("select value from metrics")]

    def saved_runs(self) -> list[str]:
        prefix = f"runs/{KEY}/runs/"
        names = self._storage.list("results", self._container, prefix)
        return [name.removeprefix(prefix) for name in names]


class Token:
    """A machine's identity; Azurite answers 401 or 403 to an invalid token."""

    def __init__(self, refused: int = 0) -> None:
        self.refused = refused

    def get_token(self, *_: str, **__: Any) -> Any:
        from azure.core.credentials import AccessToken

        self.refused -= 1
        now = int(time.time())
        token = access_token("https://storage.azure.com", "client", Identity("principal"), now)
        # The token expires at once, so the next request asks for a new one.
        return AccessToken("nobody" if self.refused >= 0 else token, now)


Make = Callable[[], Cluster]
