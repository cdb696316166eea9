"""take_environment.py NAME FOLDER: unpacks the Python environment that a head has shared.

It runs with the system's Python: the environment does not exist yet. Exit code 1: nobody has
shared it, or what is there is not whole.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.client import HTTPException, HTTPResponse

from machine_token import NO_PROXY, REQUEST_S, token

PATIENCE_S = 30.0
"""For roles that have no effect yet; the registries have the packages too."""
PAUSE_S = 3.0
CHUNK = 2**20
API_VERSION = "2021-12-02"
STORAGE = "https://storage.azure.com/"


class NotSharedError(Exception):
    """No environment can be used."""


def main(name: str, folder: str) -> int:
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            take(name, folder)
        except NotSharedError as error:
            print(error, flush=True)
        except (OSError, HTTPException) as error:
            print(f"{name}: {error}", flush=True)
            if time.monotonic() < end:
                time.sleep(PAUSE_S)
                continue
        else:
            return 0
        shutil.rmtree(folder, ignore_errors=True)
        return 1


def take(name: str, folder: str) -> None:
    """Unpacks an environment into a folder while it arrives; the blob `name` has its hash.

    Raises:
        NotSharedError: There is none, or its content is another one than the head has packed.
        OSError: Azure or the connection failed; it may be tried again.
    """
    headers = {"Authorization": f"Bearer {token(STORAGE)}", "x-ms-version": API_VERSION}
    wanted = b"".join(content_of(name, headers)).decode().strip()
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    found = hashlib.sha256()
    command = ["tar", "--extract", "--zstd", "--directory", folder]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as tar:
        assert tar.stdin is not None
        for part in content_of(f"{wanted}.tar.zst", headers):
            found.update(part)
            tar.stdin.write(part)
    if found.hexdigest() != wanted:
        raise NotSharedError(f"{wanted}.tar.zst has another hash, {found.hexdigest()}")
    if tar.returncode != 0:
        raise NotSharedError(f"tar could not unpack {wanted}.tar.zst")


def content_of(blob: str, headers: dict[str, str]) -> Iterator[bytes]:
    """Yields a blob of the container in parts."""
    place = f"{os.environ['RESULTS_ACCOUNT']}.blob.core.windows.net"
    url = f"https://{place}/{os.environ['ENVIRONMENT_CONTAINER']}/{blob}"
    answer: HTTPResponse
    try:
        answer = NO_PROXY.open(urllib.request.Request(url, headers=headers), timeout=REQUEST_S)
    except urllib.error.HTTPError as error:
        if error.code == 404:
            raise NotSharedError(f"{blob} is not in {place}") from None
        raise
    missing = int(answer.headers["Content-Length"])
    with answer:
        while part := answer.read(CHUNK):
            missing -= len(part)
            yield part
    if missing:
        raise ConnectionError(f"the connection ended {missing:,} bytes before {blob} did")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
