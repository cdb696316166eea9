"""Azure Resource Manager's REST API, for the head and for the laptop.

https://learn.microsoft.com/azure/azure-resource-manager/management/async-operations
https://learn.microsoft.com/azure/azure-resource-manager/management/request-limits-and-throttling
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

from azure.core import PipelineClient
from azure.core.credentials import TokenCredential
from azure.core.exceptions import AzureError, ClientAuthenticationError
from azure.core.pipeline.policies import BearerTokenCredentialPolicy, RetryMode, RetryPolicy
from azure.core.rest import HttpRequest, HttpResponse

PUBLIC_CLOUD = "https://management.azure.com"
RETRIES = 3
"""Only a GET is retried. A write is sent once: only the next GET shows its effect."""
BACKOFF_S = 1.0
LONGEST_WAIT_S = 30.0
"""A longer Retry-After is left to the caller: Ray's autoscaler waits for the answer."""
TIMEOUT_S = 30.0
NO_ANSWER = 0
"""The status of a request without an answer; Azure may still have executed it."""
NOT_LOGGED_IN = 401
TRANSIENT = (408, 429, 500, 502, 503, 504)
CHANGED = 412
"""The resource has changed since it was read."""
LOOPBACK = ("127.0.0.1", "::1", "localhost")

Json = dict[str, Any]


class ResourceManagerError(Exception):
    """Azure refused a request or did not answer."""

    def __init__(self, status: int, code: str, message: str, retry_after_s: float = 0) -> None:
        super().__init__(f"{code}: {message}" if code else message)
        self.status = status
        self.code = code
        self.message = message
        self.retry_after_s = retry_after_s


@dataclass(frozen=True)
class Operation:
    """The state of an asynchronous operation."""

    status: str
    """Succeeded, Failed or Canceled; any other status is not an end."""
    code: str = ""
    message: str = ""
    retry_after_s: float = 0.0
    """Seconds until Azure wants the next poll; 0 if it does not say."""

    @property
    def ended(self) -> bool:
        return self.status in {"Succeeded", "Failed", "Canceled"}

    @property
    def error(self) -> str:
        return ": ".join(filter(None, (self.code, self.message)))

    @property
    def failed(self) -> bool:
        """Whether it failed; one preempted by a later change of the same resource has not."""
        return self.status == "Failed" and "Preempted" not in self.error


def for_machine(endpoint: str) -> ResourceManager:
    """Returns a client that uses the managed identity of this machine."""
    from azure.identity import ManagedIdentityCredential

    credential = ManagedIdentityCredential(client_id=os.environ["AZURE_CLIENT_ID"])
    return ResourceManager(credential, endpoint)


class ResourceManager:
    """A client of one endpoint, which sends its token nowhere else.

    Each method raises ResourceManagerError if Azure refuses the request or does not answer.
    """

    def __init__(self, credential: TokenCredential, endpoint: str = PUBLIC_CLOUD) -> None:
        self._endpoint = endpoint.rstrip("/")
        # An endpoint on loopback stands for the public cloud.
        self._local = urlsplit(self._endpoint).hostname in LOOPBACK
        audience = PUBLIC_CLOUD if self._local else self._endpoint
        token = BearerTokenCredentialPolicy(credential, f"{audience}/.default")
        self._client = PipelineClient(self._endpoint, policies=[_Retry(), token])

    def get(self, path: str, query: Mapping[str, str]) -> Json:
        content: Json = self._send("GET", f"{self._endpoint}{path}", query).json()
        return content

    def pages(self, path: str, query: Mapping[str, str]) -> list[Json]:
        """Returns all items of a list, from all its pages."""
        page = self.get(path, query)
        items: list[Json] = list(page["value"])
        while link := page.get("nextLink"):
            page = self._send("GET", link).json()
            items += page["value"]
        return items

    def write(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Json,
        if_match: str = "",
        repeatable: bool = False,
    ) -> str:
        """Sends a change.

        Args:
            repeatable: Whether sending it twice has the same effect, so that it may be retried.

        Returns:
            The URL of the asynchronous operation; "" if Azure has finished already.
        """
        headers = {"If-Match": if_match} if if_match else {}
        methods = ("GET", method) if repeatable else ("GET",)
        url = f"{self._endpoint}{path}"
        response = self._send(method, url, query, body, headers, methods)
        return str(response.headers.get("Azure-AsyncOperation", ""))

    def operation(self, url: str) -> Operation:
        response = self._send("GET", url)
        content = response.json()
        error = content.get("error") or {}
        return Operation(
            str(content["status"]),
            str(error.get("code") or ""),
            str(error.get("message") or ""),
            _retry_after(response),
        )

    def _send(
        self,
        method: str,
        url: str,
        query: Mapping[str, str] | None = None,
        body: Json | None = None,
        headers: Mapping[str, str] | None = None,
        retried_methods: tuple[str, ...] = ("GET",),
    ) -> HttpResponse:
        if not url.startswith(f"{self._endpoint}/"):
            raise ResourceManagerError(NO_ANSWER, "", f"{url} is not at {self._endpoint}")
        url = f"{url}?{urlencode(query)}" if query else url
        request = HttpRequest(method, url, json=body, headers=dict(headers or {}))
        try:
            response: HttpResponse = self._client.send_request(
                request,
                retry_on_methods=retried_methods,
                enforce_https=not self._local,
                connection_timeout=TIMEOUT_S,
                read_timeout=TIMEOUT_S,
            )
        except ClientAuthenticationError as error:
            raise ResourceManagerError(NOT_LOGGED_IN, "", _first_line(error)) from None
        except AzureError as error:
            message = f"no answer from Azure: {_first_line(error)}"
            raise ResourceManagerError(NO_ANSWER, "", message) from None
        if response.status_code >= 400:
            raise _refusal(response)
        return response


class _Retry(RetryPolicy):
    """Leaves writes and long waits to the caller; azure-core's retries both."""

    def __init__(self) -> None:
        super().__init__(
            retry_total=RETRIES, retry_backoff_factor=BACKOFF_S, retry_mode=RetryMode.Exponential
        )

    def is_retry(self, settings: dict[str, Any], response: Any) -> bool:
        return (
            response.http_request.method in settings["methods"]
            and response.http_response.status_code in TRANSIENT
            and (self.get_retry_after(response) or 0.0) <= LONGEST_WAIT_S
        )


def _refusal(response: HttpResponse) -> ResourceManagerError:
    try:
        error = response.json()["error"]
        code, message = str(error["code"]), str(error["message"])
    except (ValueError, LookupError, TypeError):
        code, message = "", f"Azure answered {response.status_code} {response.reason}"
    return ResourceManagerError(response.status_code, code, message, _retry_after(response))


def _retry_after(response: HttpResponse) -> float:
    seconds = response.headers.get("Retry-After", "")
    return float(seconds) if seconds.isdecimal() else 0.0


def _first_line(error: AzureError) -> str:
    lines = str(error.message).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
