"""Azure Resource Manager's REST API, for the head and for the laptop.

It needs the standard library only: root runs nothing that an experiment could have changed.
https://learn.microsoft.com/azure/azure-resource-manager/management/async-operations
https://learn.microsoft.com/azure/azure-resource-manager/management/request-limits-and-throttling
"""

from __future__ import annotations

import json
import ssl
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from email.message import Message
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from time import sleep
from typing import Any, Protocol
from urllib.error import HTTPError
from urllib.parse import urlencode, urlsplit

from .machine_token import token

PUBLIC_CLOUD = "https://management.azure.com"
RETRIES = 3
"""Only a GET is retried. A write is sent once: only the next GET shows its effect."""
BACKOFF_S = 1.0
LONGEST_WAIT_S = 30.0
"""A longer Retry-After is left to the caller: Ray's autoscaler waits for the answer."""
TIMEOUT_S = 30.0
TOKEN_KEPT_S = 300.0
"""`az` takes a second for a token."""
NO_ANSWER = 0
"""The status of a request without an answer; Azure may still have executed it."""
NOT_LOGGED_IN = 401
TRANSIENT = (NO_ANSWER, 408, 429, 500, 502, 503, 504)
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


class AccessToken(Protocol):
    @property
    def token(self) -> str: ...
    @property
    def expires_on(self) -> int:
        """In seconds since the epoch."""


class Credential(Protocol):
    """azure-identity's credentials are some."""

    def get_token(self, *scopes: str) -> AccessToken:
        """Returns a token.

        Raises:
            ResourceManagerError: The login is not valid.
            OSError, HTTPException, ValueError, LookupError: The login's server does not answer.
        """


@dataclass(frozen=True)
class MachineToken:
    token: str
    expires_on: int = 0
    """Asked for each time: the metadata service keeps it."""


class MachineIdentity:
    """The managed identity of this machine."""

    def get_token(self, *scopes: str) -> MachineToken:
        try:
            return MachineToken(token(scopes[0].rpartition("/")[0]))
        except HTTPError as error:
            with error:
                # After a boot it is late: 410, or 429.
                raise OSError(f"the token service answered {error.code}") from None


def for_machine(endpoint: str) -> ResourceManager:
    """Returns a client that uses the managed identity of this machine."""
    return ResourceManager(MachineIdentity(), endpoint)


@dataclass(frozen=True)
class Answer:
    content: Json
    headers: Message


class ResourceManager:
    """A client of one endpoint, which sends its token nowhere else.

    Each method raises ResourceManagerError if Azure refuses the request or does not answer.
    """

    def __init__(
        self,
        credential: Credential,
        endpoint: str = PUBLIC_CLOUD,
        certificates: ssl.SSLContext | None = None,
    ) -> None:
        """Trusts the system's certificates by default."""
        self._endpoint = endpoint.rstrip("/")
        self._credential = credential
        # An endpoint on loopback stands for the public cloud.
        local = urlsplit(self._endpoint).hostname in LOOPBACK
        self._safe = local or self._endpoint.startswith("https://")
        self._scope = f"{PUBLIC_CLOUD if local else self._endpoint}/.default"
        self._token, self._token_until = "", 0.0
        self.date = datetime.now(timezone.utc)
        """Azure's time when it answered last."""
        tls = urllib.request.HTTPSHandler(context=certificates)
        self._open = urllib.request.build_opener(_NoRedirects, tls).open

    def get(self, path: str, query: Mapping[str, str]) -> Json:
        return self._send("GET", f"{self._endpoint}{path}", query).content

    def pages(self, path: str, query: Mapping[str, str]) -> list[Json]:
        """Returns all items of a list, from all its pages."""
        page = self.get(path, query)
        items: list[Json] = list(page["value"])
        while link := page.get("nextLink"):
            page = self._send("GET", link).content
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
        url = f"{self._endpoint}{path}"
        answer = self._send(method, url, query, body, headers, repeatable)
        return str(answer.headers.get("Azure-AsyncOperation", ""))

    def operation(self, url: str) -> Operation:
        answer = self._send("GET", url)
        error = answer.content.get("error") or {}
        return Operation(
            str(answer.content["status"]),
            str(error.get("code") or ""),
            str(error.get("message") or ""),
            _retry_after(answer.headers),
        )

    def _send(
        self,
        method: str,
        url: str,
        query: Mapping[str, str] | None = None,
        body: Json | None = None,
        headers: Mapping[str, str] | None = None,
        repeatable: bool = False,
    ) -> Answer:
        if not url.startswith(f"{self._endpoint}/"):
            raise ResourceManagerError(NO_ANSWER, "", f"{url} is not at {self._endpoint}")
        if not self._safe:
            raise ResourceManagerError(NO_ANSWER, "", f"{self._endpoint} is not an https:// URL")
        url = f"{url}?{urlencode(query)}" if query else url
        data = None if body is None else json.dumps(body).encode()
        pauses = [BACKOFF_S * 2**i for i in range(RETRIES)] * (repeatable or method == "GET")
        while True:
            try:
                return self._send_once(method, url, data, headers or {})
            except ResourceManagerError as error:
                lasts = error.status not in TRANSIENT or error.retry_after_s > LONGEST_WAIT_S
                if lasts or not pauses:
                    raise
                sleep(max(pauses.pop(0), error.retry_after_s))

    def _send_once(
        self, method: str, url: str, data: bytes | None, headers: Mapping[str, str]
    ) -> Answer:
        request = urllib.request.Request(url, data, dict(headers), method=method)
        request.add_header("Content-Type", "application/json")
        try:
            request.add_header("Authorization", f"Bearer {self._current_token()}")
            with self._open(request, timeout=TIMEOUT_S) as response:
                content = response.read()
                self.date = parsedate_to_datetime(response.headers["Date"])
                return Answer(json.loads(content) if content else {}, response.headers)
        except HTTPError as error:
            with error:
                raise _refusal(error) from None
        except (OSError, HTTPException, ValueError, LookupError) as error:
            # urllib hides the cause in an error of its own.
            reason = str(getattr(error, "reason", "") or error) or type(error).__name__
            line = reason.strip().splitlines()[0].rstrip(".")
            raise ResourceManagerError(NO_ANSWER, "", f"no answer from Azure: {line}") from None

    def _current_token(self) -> str:
        if time.monotonic() >= self._token_until:
            granted = self._credential.get_token(self._scope)
            kept_s = min(granted.expires_on - time.time() - 60, TOKEN_KEPT_S)
            self._token, self._token_until = granted.token, time.monotonic() + kept_s
        return self._token


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Would send the token to another server."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _refusal(answer: HTTPError) -> ResourceManagerError:
    try:
        error = json.loads(answer.read())["error"]
        code, message = str(error["code"]), str(error["message"])
    except (OSError, HTTPException, ValueError, LookupError, TypeError):
        code, message = "", f"Azure answered {answer.code} {answer.reason}"
    return ResourceManagerError(answer.code, code, message, _retry_after(answer.headers))


def _retry_after(headers: Message) -> float:
    seconds = headers.get("Retry-After", "")
    return float(seconds) if seconds.isdecimal() else 0.0
