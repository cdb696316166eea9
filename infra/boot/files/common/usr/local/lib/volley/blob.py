"""blob.py get|put CONTAINER NAME FILE: one blob of the results account, by the machine's identity.

Root runs it on the system's Python, with the standard library: an experiment's code can change
neither.
"""

from __future__ import annotations

import os
import sys
import time
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from http.client import HTTPException, HTTPResponse

from machine_token import NO_PROXY, REQUEST_S, token

RETRY_FOR_S = 20 * 60.0
"""A role assignment can take ten minutes to propagate."""
PAUSE_S = 5.0
CHUNK = 2**20
BLOCK = 32 * 2**20
STORAGE = "https://storage.azure.com/"


class Container:
    """A container of the results account; each method raises OSError or HTTPException."""

    def __init__(self, name: str) -> None:
        self.host = f"{os.environ['RESULTS_ACCOUNT']}.blob.core.windows.net"
        self._url = f"https://{self.host}/{name}"
        self._headers = {"Authorization": f"Bearer {token(STORAGE)}", "x-ms-version": "2021-12-02"}

    def read(self, name: str) -> Iterator[bytes]:
        """Yields a blob in parts."""
        with self._ask("GET", name) as answer:
            missing = int(answer.headers["Content-Length"])
            while part := answer.read(CHUNK):
                missing -= len(part)
                yield part
        if missing:
            raise ConnectionError(f"the connection ended {missing:,} bytes before {name} did")

    def write(self, name: str, file: str) -> None:
        """Replaces a blob: https://learn.microsoft.com/rest/api/storageservices/put-block-list"""
        blocks: list[str] = []
        with open(file, "rb") as content:
            while part := content.read(BLOCK):
                blocks.append(b64encode(b"%08d" % len(blocks)).decode())
                self._ask("PUT", f"{name}?comp=block&blockid={blocks[-1]}", part).close()
        listed = "".join(f"<Latest>{block}</Latest>" for block in blocks)
        body = f"<BlockList>{listed}</BlockList>".encode()
        self._ask("PUT", f"{name}?comp=blocklist", body).close()

    def _ask(self, method: str, path: str, body: bytes | None = None) -> HTTPResponse:
        headers = {**self._headers, "Content-Type": "application/octet-stream"}
        request = urllib.request.Request(f"{self._url}/{path}", body, headers, method=method)
        try:
            answer: HTTPResponse = NO_PROXY.open(request, timeout=REQUEST_S)
        except urllib.error.HTTPError as error:
            error.msg = error.headers.get("x-ms-error-code", error.msg)
            raise
        return answer


def get(container: str, name: str, file: str) -> None:
    """Writes a blob to a file that only root can read."""
    content = b"".join(Container(container).read(name))
    aside = f"{file}.new"
    with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as new:
        new.write(content)
    os.replace(aside, file)


def put(container: str, name: str, file: str) -> None:
    Container(container).write(name, file)


def main(verb: str, container: str, name: str, file: str) -> int:
    end = time.monotonic() + RETRY_FOR_S
    while True:
        try:
            {"get": get, "put": put}[verb](container, name, file)
        except (OSError, HTTPException) as error:
            print(f"{container}/{name}: {error}", flush=True)
            if time.monotonic() > end:
                return 1
            time.sleep(PAUSE_S)
        else:
            print(f"{verb} {container}/{name}: done", flush=True)
            return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
