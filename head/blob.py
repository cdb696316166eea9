"""The results account's containers, by managed identity."""

import os
import time
from collections.abc import Callable
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
