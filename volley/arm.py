"""The head's VM, asked of Azure Resource Manager: its power state, and its start.

https://learn.microsoft.com/rest/api/compute/virtual-machines/start
https://learn.microsoft.com/azure/azure-resource-manager/management/async-operations
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from azure.core import PipelineClient
from azure.core.credentials import TokenCredential
from azure.core.exceptions import AzureError, ClientAuthenticationError, HttpResponseError
from azure.core.pipeline.policies import BearerTokenCredentialPolicy, RetryPolicy
from azure.core.rest import HttpRequest, HttpResponse

from payload.errors import UserError
from volley.azure_login import how_to_log_in
from volley.errors import refused

PUBLIC_CLOUD = "https://management.azure.com"
API_VERSION = "2024-07-01"
RUNNING = "PowerState/running"
LOOPBACK = ("127.0.0.1", "::1", "localhost")
POLL_S = 5.0
NO_ROOM = (
    "AllocationFailed",
    "OverconstrainedAllocationRequest",
    "OverconstrainedZonalAllocationRequest",
    "SkuNotAvailable",
    "ZonalAllocationFailed",
)
"""https://learn.microsoft.com/troubleshoot/azure/virtual-machines/windows/allocation-failure"""
AGAIN = "volley start, again later"
RETRIES = 5
TIMEOUT_S = 30


class HeadMachine:
    """The head's VM."""

    def __init__(
        self, head_id: str, credential: TokenCredential, environment: Mapping[str, str]
    ) -> None:
        """Asks nothing yet.

        Args:
            head_id: The VM's resource id.
            environment: ARM_ENDPOINT is of a cloud other than the public one.
        """
        self._id, self._environment = head_id, environment
        self._endpoint = environment.get("ARM_ENDPOINT", PUBLIC_CLOUD).rstrip("/")
        self._local = urlsplit(self._endpoint).hostname in LOOPBACK
        # To start a VM twice is to start it once: a POST is repeated like a GET.
        retry = RetryPolicy(retry_total=RETRIES)
        token = BearerTokenCredentialPolicy(credential, f"{self._endpoint}/.default")
        self._client = PipelineClient(self._endpoint, policies=[retry, token])

    def runs(self) -> bool:
        """Whether the VM runs; a deallocated one does not.

        Raises:
            UserError: Azure refused, or did not answer.
        """
        found = self._ask("GET", f"{self._id}?$expand=instanceView&api-version={API_VERSION}")
        statuses = found.json()["properties"]["instanceView"]["statuses"]
        return any(status["code"] == RUNNING for status in statuses)

    def start(self, waiting: Callable[[], None]) -> None:
        """Starts the VM; returns when Azure says that it runs.

        Args:
            waiting: Is called before each question how far the start is.

        Raises:
            UserError: Azure refused, has no machine of this size, or did not answer.
        """
        begun = self._ask("POST", f"{self._id}/start?api-version={API_VERSION}")
        url = begun.headers.get("Azure-AsyncOperation", "")
        wait_s = _retry_after(begun)
        while url:
            waiting()
            time.sleep(wait_s)
            answer = self._ask("GET", url)
            operation = answer.json()
            if operation["status"] in {"Failed", "Canceled"}:
                error = operation.get("error") or {}
                raise _failed(str(error.get("code", "")), str(error.get("message", "")))
            if operation["status"] == "Succeeded":
                return
            wait_s = _retry_after(answer)

    def _ask(self, method: str, url: str) -> HttpResponse:
        url = url if url.startswith("http") else f"{self._endpoint}{url}"
        if not url.startswith(f"{self._endpoint}/"):  # The token is for nobody else.
            raise refused(f"Azure's answer leads away from {self._endpoint}", AGAIN)
        request = HttpRequest(method, url)
        try:
            response: HttpResponse = self._client.send_request(
                request,
                retry_on_methods=("GET", "POST"),
                enforce_https=not self._local,
                connection_timeout=TIMEOUT_S,
                read_timeout=TIMEOUT_S,
            )
            response.raise_for_status()
        except HttpResponseError as error:
            if isinstance(error, ClientAuthenticationError) or error.status_code == 401:
                raise refused(
                    f"not logged in to Azure: {_first(error)}",
                    how_to_log_in(self._environment),
                ) from None
            raise self._refusal(error) from None
        except AzureError as error:
            raise refused(f"Azure does not answer: {_first(error)}", "volley start") from None
        return response

    def _refusal(self, error: HttpResponseError) -> UserError:
        code, message = _code_and_message(error)
        if error.status_code == 403:
            group = self._id.partition("/providers/")[0]
            return refused(
                f"your login may not start the head: {message.rstrip('.')}",
                'az role assignment create --role "Virtual Machine Contributor" '
                f"--scope {group} --assignee YOU, by an owner of the subscription",
            )
        if error.status_code == 404:
            return refused(f"Azure has no such head: {message.rstrip('.')}", "make up")
        return _failed(code, message)


def _failed(code: str, message: str) -> UserError:
    if code in NO_ROOM:
        return refused(f"Azure has no machine of the head's size at the moment ({code})", AGAIN)
    said = ": ".join(text for text in (code, message.rstrip(".")) if text)
    return refused(f"Azure did not start the head: {said or 'it gave no reason'}", AGAIN)


def _code_and_message(error: HttpResponseError) -> tuple[str, str]:
    """Returns what Azure says of an error: {"error": {"code", "message"}}."""
    try:
        assert error.response is not None
        said: dict[str, Any] = error.response.json()["error"]
        return str(said["code"]), str(said["message"])
    except (ValueError, LookupError, TypeError):
        return "", f"HTTP {error.status_code} {error.reason}"


def _retry_after(response: HttpResponse) -> float:
    text = response.headers.get("Retry-After", "")
    return float(text) if text.isdecimal() else POLL_S


def _first(error: AzureError) -> str:
    lines = str(error.message).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
