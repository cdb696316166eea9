"""blob.py get|put CONTAINER NAME FILE: one blob of the results account, by managed identity."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from azure.core.exceptions import AzureError, ResourceNotFoundError
from azure.identity import ManagedIdentityCredential
from azure.storage.blob import BlobServiceClient, ContainerClient

PATIENCE_S = 20 * 60.0
"""A role assignment can take ten minutes until every server knows it."""
PAUSE_S = 5.0


def container(name: str) -> ContainerClient:
    """Returns a container of the results account."""
    account = f"https://{os.environ['RESULTS_ACCOUNT']}.blob.core.windows.net"
    credential = ManagedIdentityCredential(client_id=os.environ["AZURE_CLIENT_ID"])
    return BlobServiceClient(account, credential).get_container_client(name)


def main(verb: str, container_name: str, name: str, file: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            blob = container(container_name).get_blob_client(name)
            if verb == "get":
                write(Path(file), blob.download_blob().readall())
            else:
                blob.upload_blob(Path(file).read_bytes(), overwrite=True)
        except AzureError as error:
            reason = "is not there yet" if isinstance(error, ResourceNotFoundError) else error
            print(f"{container_name}/{name}: {str(reason).splitlines()[0]}", flush=True)
            if time.monotonic() > end:
                sys.exit(1)
            time.sleep(PAUSE_S)
        else:
            print(f"{verb} {container_name}/{name}: done", flush=True)
            return


def write(path: Path, content: bytes) -> None:
    """Writes a file that only its owner reads."""
    aside = path.with_name(f".{path.name}")
    aside.touch(0o600)
    aside.write_bytes(content)
    aside.replace(path)


if __name__ == "__main__":
    main(*sys.argv[1:])
