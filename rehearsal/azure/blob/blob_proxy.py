"""A proxy in front of Azurite, which has no roles: it passes requests that a role allows.

https://learn.microsoft.com/rest/api/storageservices/authorize-with-azure-active-directory

    python -m rehearsal.azure.blob.blob_proxy FOLDER ADDRESS PORT AZURITE_PORT
"""

from __future__ import annotations

import json
import shutil
import ssl
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import ClassVar
from urllib.parse import parse_qs, unquote, urlsplit

from rehearsal import shared_file
from rehearsal.azure import certificates
from rehearsal.azure.blob import blob_faults
from rehearsal.azure.blob.billing import BlobRequest
from rehearsal.azure.blob.blob_faults import BlobFaults
from rehearsal.azure.http_server import Answer, Handler, Server
from rehearsal.azure.metadata.managed_identity import claims
from rehearsal.azure.resources import roles

LOOPBACK = "127.0.0.1"
HOST_SUFFIX = ".blob.core.windows.net"
HOP_BY_HOP = {"connection", "content-length", "keep-alive", "transfer-encoding"}
TIMEOUT_S = 60
PART = 2**20
ACCESS = "access.json"
"""The file with the current Access; nobody may do anything before it exists."""
REQUESTS = "requests.jsonl"
"""The file with the requests that have changed a blob, a line each."""
PERMISSIONS = {"GET": "read", "HEAD": "read", "PUT": "write", "DELETE": "delete"}
XML = '<?xml version="1.0" encoding="utf-8"?><Error><Code>{}</Code><Message>{}</Message></Error>'
MISMATCH = "This request is not authorized to perform this operation using this permission."


@dataclass(frozen=True)
class Access:
    """The permissions for the accounts."""

    accounts: Mapping[str, str] = field(default_factory=dict)
    """Resource ids by the accounts' names."""
    assignments: tuple[roles.RoleAssignment, ...] = ()

    def allows(self, method: str, host: str, url: str, authorization: str, now: float) -> bool:
        """Returns whether a request is allowed; Azurite checks the token's audience and age."""
        path, query = unquote(urlsplit(url).path), parse_qs(urlsplit(url).query)
        account_id = self.accounts.get(host.partition(HOST_SUFFIX)[0])
        action = needed_action(method, {key: values[0] for key, values in query.items()})
        principal = claims(authorization).get("oid")
        if account_id is None or action is None or principal is None:
            return False
        container = path.removeprefix("/").partition("/")[0]
        resource_id = f"{account_id}/blobServices/default/containers/{container}"
        return roles.is_allowed(self.assignments, principal, action, resource_id, now)


def needed_action(method: str, query: Mapping[str, str]) -> str | None:
    """Returns the permission that an operation needs; None for an unsupported operation."""
    if method == "POST":
        return roles.DELEGATION_KEY if query.get("comp") == "userdelegationkey" else None
    # Listing a container's blobs reads blobs; listing an account's containers reads containers.
    lists, of_container = query.get("comp") == "list", query.get("restype") == "container"
    return f"{roles.BLOBS if lists == of_container else roles.CONTAINERS}/{PERMISSIONS[method]}"


def serve(folder: Path, address: str, port: int, azurite_port: int) -> None:
    _Handler.folder, _Handler.azurite_port = folder, azurite_port
    _Handler.trust = ssl.create_default_context(cafile=certificates.authority(folder))
    with Server((address, port), _Handler) as server:
        server.use_tls(folder)
        server.serve_forever()


class _Handler(Handler):
    folder: ClassVar[Path]
    azurite_port: ClassVar[int]
    trust: ClassVar[ssl.SSLContext]

    def respond(self, headers: Mapping[str, str], body: bytes) -> None:
        authorization, host = headers.get("Authorization", ""), headers.get("Host", "")
        access = shared_file.read(self.folder / ACCESS, Access)
        if not access.allows(self.command, host, self.path, authorization, time.time()):
            self._refuse(403, "AuthorizationPermissionMismatch", MISMATCH)
            return
        mode = shared_file.read(self.folder / blob_faults.FILE, BlobFaults).mode
        if mode == "busy":
            self._refuse(503, "ServerBusy", "The server is currently unable to receive requests.")
            return
        try:
            self._forward(body, lost=mode == "lost")
        except (OSError, HTTPException) as error:
            if not self.close_connection:
                self._refuse(503, "ServerBusy", str(error))

    def _forward(self, body: bytes, lost: bool) -> None:
        azurite = HTTPSConnection(
            LOOPBACK, self.azurite_port, timeout=TIMEOUT_S, context=self.trust
        )
        headers = {k: v for k, v in self.headers.items() if k.lower() not in HOP_BY_HOP}
        try:
            azurite.request(self.command, self.path, body or None, headers)
            response = azurite.getresponse()
            if self.command in ("PUT", "DELETE") and response.status < HTTPStatus.MULTIPLE_CHOICES:
                self._note(body)
            if lost:
                self.close_connection = True
                return
            self._pass_on(response)
        finally:
            azurite.close()

    def _note(self, body: bytes) -> None:
        """Writes down a request that has changed a blob: what it bills, see billing.py."""
        request = BlobRequest(
            self.command,
            self.path,
            len(body),
            self.headers.get("x-ms-blob-type", ""),
            self.headers.get("x-ms-copy-source", ""),
            body.decode() if "comp=blocklist" in self.path else "",
        )
        line = json.dumps({"host": self.headers["Host"], **asdict(request)})
        with (self.folder / REQUESTS).open("a") as file:
            file.write(f"{line}\n")

    def _pass_on(self, response: HTTPResponse) -> None:
        """Sends an answer in parts: a Python environment is gigabytes large."""
        length = response.getheader("Content-Length")
        content = b"" if length else response.read()
        self.send_response_only(response.status, response.reason)
        for name, value in response.getheaders():
            if name.lower() not in HOP_BY_HOP:
                self.send_header(name, value)
        self.send_header("Content-Length", length or str(len(content)))
        self.end_headers()
        try:
            self.wfile.write(content)
            shutil.copyfileobj(response, self.wfile, PART)
        finally:
            # Half of an answer cannot be replaced by an error: the connection ends instead.
            self.close_connection = self.close_connection or bool(response.length)

    def _refuse(self, status: int, code: str, message: str) -> None:
        print(f"{self.command} {self.path}: {status} {code}", flush=True)
        headers = {"x-ms-error-code": code, "Content-Type": "application/xml"}
        self.send(Answer(status, XML.format(code, message), headers))

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Logs nothing: `_refuse` prints the refused requests."""


if __name__ == "__main__":
    serve(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
