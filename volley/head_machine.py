"""The head's VM in Azure: its power state, and its start.

https://learn.microsoft.com/rest/api/compute/virtual-machines/start
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from azure.core.credentials import TokenCredential
from azure.core.exceptions import AzureError, ClientAuthenticationError, HttpResponseError

from payload.errors import UserError
from volley.azure_login import credential, how_to_log_in
from volley.errors import refused
from volley.resource_manager import OperationError, ResourceManager

API_VERSION = "2024-07-01"
RUNNING = "PowerState/running"
NO_CAPACITY = (
    "AllocationFailed",
    "OverconstrainedAllocationRequest",
    "OverconstrainedZonalAllocationRequest",
    "SkuNotAvailable",
    "ZonalAllocationFailed",
)
"""https://learn.microsoft.com/troubleshoot/azure/virtual-machines/windows/allocation-failure"""


class HeadMachine:
    """The head's VM."""

    def __init__(
        self, head_id: str, login: TokenCredential, environment: Mapping[str, str]
    ) -> None:
        """
        Args:
            head_id: The VM's resource id.
            environment: The variables of pulumi-azure-native, and ARM_ENDPOINT.
        """
        self._id, self._environment = head_id, environment
        self._azure = ResourceManager(login, environment)

    def is_running(self) -> bool:
        """Whether the VM is running; a sleeping head is deallocated.

        Raises:
            UserError: Azure refuses, or does not answer.
        """
        url = f"{self._id}?$expand=instanceView&api-version={API_VERSION}"
        with self._in_words():
            vm = self._azure.request("GET", url).json()
        statuses = vm["properties"]["instanceView"]["statuses"]
        return any(status["code"] == RUNNING for status in statuses)

    def start(self, waiting: Callable[[], None]) -> None:
        """Starts the VM; returns when Azure reports that it is running.

        Args:
            waiting: Called before each question about the start.

        Raises:
            UserError: Azure refuses, has no capacity for this size, or does not answer.
        """
        with self._in_words():
            # Starting a VM twice has no effect, so the request may be repeated.
            accepted = self._azure.request("POST", f"{self._id}/start?api-version={API_VERSION}")
            self._azure.wait(accepted, waiting)

    @contextmanager
    def _in_words(self) -> Iterator[None]:
        """Raises UserError for an error of Azure."""
        try:
            yield
        except OperationError as error:
            raise _not_started(error.code, str(error.message)) from None
        except HttpResponseError as error:
            if isinstance(error, ClientAuthenticationError) or error.status_code == 401:
                raise refused(
                    f"not logged in to Azure: {_first_line(error)}",
                    how_to_log_in(self._environment),
                ) from None
            raise self._refusal(error) from None
        except AzureError as error:
            raise refused(f"Azure does not answer: {_first_line(error)}", "volley start") from None

    def _refusal(self, error: HttpResponseError) -> UserError:
        code, message = _code_and_message(error)
        if error.status_code == 403:
            group = self._id.partition("/providers/")[0]
            return refused(
                f"your Azure login may not start the head: {message.rstrip('.')}",
                "an owner of the subscription types: az role assignment create "
                f'--role "Virtual Machine Contributor" --scope {group} --assignee YOU',
            )
        if error.status_code == 404:
            return refused(f"the head does not exist in Azure: {message.rstrip('.')}", "volley up")
        return _not_started(code, message)


def head_machine(head_id: str) -> HeadMachine:
    """Returns the VM with this resource id, for the login of `volley up`."""
    # A credential logs what its error contains.
    logging.getLogger("azure").addHandler(logging.NullHandler())
    login = credential(os.environ, subscription=head_id.split("/")[2])
    return HeadMachine(head_id, login, os.environ)


def _not_started(code: str, message: str) -> UserError:
    later = "volley start, in some minutes"
    if code in NO_CAPACITY:
        return refused(f"Azure has no capacity for the head's VM size now ({code})", later)
    reason = ": ".join(text for text in (code, message.rstrip(".")) if text)
    return refused(f"Azure did not start the head: {reason or 'it gave no reason'}", later)


def _code_and_message(error: HttpResponseError) -> tuple[str, str]:
    """Returns the parts of Azure's answer: {"error": {"code", "message"}}."""
    try:
        assert error.response is not None
        answer = error.response.json()["error"]
        return str(answer["code"]), str(answer["message"])
    except (ValueError, LookupError, TypeError):
        return "", f"HTTP {error.status_code} {error.reason}"


def _first_line(error: AzureError) -> str:
    lines = str(error.message).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
