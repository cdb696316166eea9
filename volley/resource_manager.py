"""Requests to Azure Resource Manager; the caller words the errors.

https://learn.microsoft.com/azure/azure-resource-manager/management/async-operations
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from azure.core import PipelineClient
from azure.core.credentials import TokenCredential
from azure.core.exceptions import AzureError
from azure.core.pipeline.policies import BearerTokenCredentialPolicy, RetryPolicy
from azure.core.rest import HttpRequest, HttpResponse

PUBLIC_CLOUD = "https://management.azure.com"
LOOPBACK = ("127.0.0.1", "::1", "localhost")
POLL_S = 5.0
"""Between two questions about an operation, if Azure names no time."""
RETRIES = 5
TIMEOUT_S = 30


class OperationError(AzureError):
    """An operation that Azure had accepted failed."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class ResourceManager:
    """A client with a token and retries, for requests that may be repeated."""

    def __init__(self, credential: TokenCredential, environment: Mapping[str, str]) -> None:
        """Connects to nothing yet.

        Args:
            environment: ARM_ENDPOINT is the endpoint outside the public cloud.
        """
        self._endpoint = environment.get("ARM_ENDPOINT", PUBLIC_CLOUD).rstrip("/")
        self._local = urlsplit(self._endpoint).hostname in LOOPBACK
        retry = RetryPolicy(retry_total=RETRIES)
        token = BearerTokenCredentialPolicy(credential, f"{self._endpoint}/.default")
        self._client = PipelineClient(self._endpoint, policies=[retry, token])

    def request(self, method: str, url: str) -> HttpResponse:
        """Sends a request, again if Azure throttles or the answer is lost.

        Args:
            url: A path below the endpoint, or an address of the endpoint's own.

        Raises:
            AzureError: HttpResponseError if Azure refuses.
        """
        url = url if url.startswith("http") else f"{self._endpoint}{url}"
        if not url.startswith(f"{self._endpoint}/"):  # The token is for nobody else.
            raise AzureError(f"Azure's answer leads away from {self._endpoint}")
        response: HttpResponse = self._client.send_request(
            HttpRequest(method, url),
            retry_on_methods=("GET", "POST"),
            enforce_https=not self._local,
            connection_timeout=TIMEOUT_S,
            read_timeout=TIMEOUT_S,
        )
        response.raise_for_status()
        return response

    def wait(self, accepted: HttpResponse, waiting: Callable[[], None]) -> None:
        """Waits until an accepted operation has succeeded.

        Args:
            waiting: Called before each question.

        Raises:
            AzureError: OperationError if it fails.
        """
        url = accepted.headers.get("Azure-AsyncOperation", "")
        pause_s = _retry_after(accepted)
        while url:
            waiting()
            time.sleep(pause_s)
            answer = self.request("GET", url)
            operation = answer.json()
            if operation["status"] in {"Failed", "Canceled"}:
                error = operation.get("error") or {}
                raise OperationError(str(error.get("code", "")), str(error.get("message", "")))
            if operation["status"] == "Succeeded":
                return
            pause_s = _retry_after(answer)


def _retry_after(response: HttpResponse) -> float:
    text = response.headers.get("Retry-After", "")
    return float(text) if text.isdecimal() else POLL_S
