"""blob.py get|put CONTAINER NAME FILE: one blob of the results account, by managed identity.

Workers have it in customData, so a change of it replaces them; the head's software brings it to the
head. It imports nothing of this package.
"""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from azure.core.exceptions import AzureError, ResourceNotFoundError
from azure.identity import ManagedIdentityCredential
from azure.storage.blob import BlobServiceClient, ContainerClient

RETRY_FOR_S = 20 * 60.0
"""A role assignment can take ten minutes to propagate."""
PAUSE_S = 5.0

Answer = TypeVar("Answer")


def container(name: str) -> ContainerClient:
    account = f"https://{os.environ['RESULTS_ACCOUNT']}.blob.core.windows.net"
    credential = ManagedIdentityCredential(client_id=os.environ["AZURE_CLIENT_ID"])
    return BlobServiceClient(account, credential).get_container_client(name)


def retry(what: str, ask: Callable[[], Answer]) -> Answer:
    """Retries a request to Azure until it succeeds.

    Raises:
        AzureError: The request has failed for RETRY_FOR_S.
    """
    end = time.monotonic() + RETRY_FOR_S
    while True:
        try:
            return ask()
        except AzureError as error:
            reason = "is not there yet" if isinstance(error, ResourceNotFoundError) else str(error)
            print(f"{what}: {reason.partition(chr(10))[0]}", flush=True)
            if time.monotonic() > end:
                raise
            time.sleep(PAUSE_S)


def write(path: Path, content: bytes) -> None:
    """Writes a file that only its owner can read."""
    aside = path.with_name(f".{path.name}")
    aside.touch(0o600)
    aside.write_bytes(content)
    aside.replace(path)


def get(container_name: str, name: str, file: Path) -> None:
    write(file, container(container_name).download_blob(name).readall())


def put(container_name: str, name: str, file: Path) -> None:
    with file.open("rb") as content:
        container(container_name).upload_blob(name, content, overwrite=True, max_concurrency=4)


def main(verb: str, container_name: str, name: str, file: str) -> None:
    do = {"get": get, "put": put}[verb]
    try:
        retry(f"{container_name}/{name}", lambda: do(container_name, name, Path(file)))
    except AzureError:
        sys.exit(1)
    print(f"{verb} {container_name}/{name}: done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
