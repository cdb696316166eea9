"""Azure Resource Manager's REST API, with a token of the machine's managed identity.

https://learn.microsoft.com/azure/azure-resource-manager/management/async-operations
https://learn.microsoft.com/azure/azure-resource-manager/management/request-limits-and-throttling
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import requests

ENDPOINT = "https://management.azure.com"
AUDIENCE = f"{ENDPOINT}/.default"
TRIES = 4
"""Of a GET; a write is sent once, since only the next GET says what became of it."""
LONGEST_WAIT_S = 30.0
"""A longer Retry-After is the caller's: Ray's autoscaler waits for the answer."""
TIMEOUT_S = 30.0
NO_ANSWER = 0
"""The status of a request without an answer; what was asked may have been done."""
CHANGED = 412
"""Somebody has changed the resource since it was read."""
TRANSIENT = (NO_ANSWER, 408, 429, 500, 502, 503, 504)

Json = dict[str, Any]


class ManagementError(Exception):
    """Azure refused a request or did not answer."""

    def __init__(self, status: int, code: str, message: str, retry_after_s: float = 0) -> None:
        super().__init__(f"{code}: {message}" if code else message)
        self.status = status
        self.code = code
        self.retry_after_s = retry_after_s


@dataclass(frozen=True)
class Operation:
    """How far an asynchronous operation is."""

    status: str
    """Succeeded, Failed, Canceled; anything else is not an end."""
    error: str = ""
    """Code and message, for people."""

    @property
    def ended(self) -> bool:
        return self.status in {"Succeeded", "Failed", "Canceled"}

    @property
    def failed(self) -> bool:
        """One that a later change of the same resource has preempted has not failed."""
        return self.status == "Failed" and "Preempted" not in self.error


def machine_token() -> Callable[[], str]:
    """Returns what gives tokens of the machine's identity; each is kept until it expires."""
    from azure.identity import ManagedIdentityCredential  # The system's Python has it not.

    credential = ManagedIdentityCredential(client_id=os.environ["AZURE_CLIENT_ID"])
    return lambda: str(credential.get_token(AUDIENCE).token)


class Management:
    """Requests to one endpoint; the token is sent to no other."""

    def __init__(self, token: Callable[[], str], endpoint: str) -> None:
        self._token = token
        self._endpoint = endpoint
        self._session = requests.Session()

    def get(self, path: str, query: Mapping[str, str]) -> Json:
        """Returns what Azure answers.

        Raises:
            ManagementError: It refused, or did not answer in TRIES tries.
        """
        return self._get(f"{self._endpoint}{path}", query)

    def pages(self, path: str, query: Mapping[str, str]) -> list[Json]:
        """Returns all items of a list, from all its pages.

        Raises:
            ManagementError: One of the pages is missing.
        """
        page = self.get(path, query)
        found: list[Json] = list(page["value"])
        while link := page.get("nextLink"):
            page = self._get(link, {})
            found += page["value"]
        return found

    def write(
        self, method: str, path: str, query: Mapping[str, str], body: Json, if_match: str = ""
    ) -> str:
        """Sends a change; returns the URL of the operation, "" if Azure has done it at once.

        Raises:
            ManagementError: Azure refused, or did not answer.
        """
        headers = {"If-Match": if_match} if if_match else {}
        response = self._send(method, f"{self._endpoint}{path}", query, body, headers)
        return response.headers.get("Azure-AsyncOperation", "")

    def operation(self, url: str) -> Operation:
        """Returns how far an operation is.

        Raises:
            ManagementError: Azure does not say.
        """
        found = self._get(url, {})
        error = found.get("error") or {}
        text = ": ".join(filter(None, (error.get("code"), error.get("message"))))
        return Operation(str(found["status"]), text)

    def _get(self, url: str, query: Mapping[str, str]) -> Json:
        for tries in range(1, TRIES + 1):
            try:
                found: Json = self._send("GET", url, query).json()
                return found
            except ManagementError as error:
                wait_s = error.retry_after_s or 2.0 ** (tries - 1)
                final = tries == TRIES or error.status not in TRANSIENT
                if final or wait_s > LONGEST_WAIT_S:
                    raise
            time.sleep(wait_s)
        raise AssertionError("a loop of tries ends by itself")

    def _send(
        self,
        method: str,
        url: str,
        query: Mapping[str, str],
        body: Json | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> requests.Response:
        if not url.startswith(f"{self._endpoint}/"):
            raise ManagementError(NO_ANSWER, "", f"{url} is not at {self._endpoint}")
        sent = {"Authorization": f"Bearer {self._token()}", **(headers or {})}
        try:
            response = self._session.request(
                method, url, params=query, json=body, headers=sent, timeout=TIMEOUT_S
            )
        except requests.RequestException as error:
            raise ManagementError(NO_ANSWER, "", f"no answer from Azure: {error}") from None
        if response.ok:
            return response
        raise _refusal(response)


def _refusal(response: requests.Response) -> ManagementError:
    try:
        error = response.json()["error"]
        code, message = str(error["code"]), str(error["message"])
    except (ValueError, LookupError, TypeError):
        code, message = "", f"Azure answered {response.status_code} {response.reason}"
    retry_after = response.headers.get("Retry-After", "")
    wait_s = float(retry_after) if retry_after.isdecimal() else 0.0
    return ManagementError(response.status_code, code, message, wait_s)
