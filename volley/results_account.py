"""The results account, read from this machine with the login of `volley up`.

https://learn.microsoft.com/azure/storage/blobs/assign-azure-role-data-access
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from payload.errors import TemporaryError, UserError
from volley.errors import not_installed, refused

if TYPE_CHECKING:
    from azure.storage.blob import ContainerClient

NAME = re.compile(r"[a-z0-9]{3,24}")
"""https://learn.microsoft.com/azure/azure-resource-manager/management/resource-name-rules"""
ID = re.compile(
    r"/subscriptions/(?P<subscription>[^/]+)/resourceGroups/[^/]+/providers/Microsoft\.Storage"
    r"/storageAccounts/(?P<name>[^/]+)/?",
    re.IGNORECASE,
)
URL = re.compile(r"https://(?P<name>[a-z0-9]+)\.blob\.core\.windows\.net(/.*)?")
CONTAINER = "results"
MY_ADDRESS = '"$(curl -s https://api.ipify.org)"'
UNRESOLVED = ("Failed to resolve", "Name or service not known", "nodename nor servname")
TIMEOUT_S = 20


@dataclass(frozen=True)
class Account:
    """A storage account with the container of the results."""

    name: str
    id: str = ""
    """The resource id, if it is known."""

    @classmethod
    def of(cls, text: str) -> Account:
        """Reads a name, a resource id or an address.

        Raises:
            UserError: It is none of them.
        """
        for pattern in (ID, URL):
            if match := pattern.fullmatch(text):
                return cls(match["name"].lower(), text if pattern is ID else "")
        if not NAME.fullmatch(text):
            raise UserError(
                f"--results-account {text!r}: must be the account's name (3 to 24 of a-z and 0-9), "
                "its resource id or its address"
            )
        return cls(text)

    @property
    def subscription(self) -> str | None:
        """None if it is not known: then that of the login."""
        match = ID.fullmatch(self.id)
        return match["subscription"] if match else None


def connect(account: Account) -> ContainerClient:
    """Returns the container of the results; the first request shows whether it can be read.

    Raises:
        UserError: azure-identity or azure-storage-blob is not installed.
    """
    for module, package in (
        ("azure.identity", "azure-identity"),
        ("azure.storage.blob", "azure-storage-blob"),
    ):
        try:
            installed = find_spec(module) is not None
        except ModuleNotFoundError:
            installed = False
        if not installed:
            raise not_installed(package, "infra")
    from azure.storage.blob import ContainerClient

    from volley.head_machine import credential

    logging.getLogger("azure").addHandler(logging.NullHandler())
    return ContainerClient(
        f"https://{account.name}.blob.core.windows.net",
        CONTAINER,
        credential(os.environ, account.subscription),
        connection_timeout=TIMEOUT_S,
        read_timeout=60,
        retry_total=3,
    )


@contextmanager
def in_words(account: Account) -> Iterator[None]:
    """Raises the errors of Azure as people read them.

    Raises:
        UserError: No login, no role, no way through the firewall, or no such account.
        TemporaryError: The account does not answer.
    """
    from azure.core.exceptions import (
        AzureError,
        ClientAuthenticationError,
        HttpResponseError,
        ResourceNotFoundError,
    )

    from volley.head_machine import how_to_log_in

    try:
        yield
    except ClientAuthenticationError as error:
        raise refused(
            f"not logged in to Azure: {_first_line(error)}", how_to_log_in(os.environ)
        ) from None
    except ResourceNotFoundError:
        raise UserError(f"the account {account.name} has no container {CONTAINER}") from None
    except HttpResponseError as error:
        if error.status_code == 403:
            raise _forbidden(account, str(error.error_code or "")) from None
        raise TemporaryError(f"the account {account.name}: {_first_line(error)}") from None
    except AzureError as error:
        if any(words in str(error) for words in UNRESOLVED):
            raise UserError(
                f"the account {account.name} does not exist, or this machine cannot find it: "
                f"{_first_line(error)}"
            ) from None
        raise TemporaryError(
            f"the account {account.name} does not answer: {_first_line(error)}"
        ) from None


def _forbidden(account: Account, code: str) -> UserError:
    if code == "AuthorizationPermissionMismatch":
        scope = account.id or f"$(az storage account show --name {account.name} --query id -o tsv)"
        return refused(
            f"your Azure login may not read the account {account.name}",
            'an owner types: az role assignment create --role "Storage Blob Data Reader" '
            f"--scope {scope} --assignee YOU",
        )
    return refused(
        f"the firewall of the account {account.name} does not admit this machine ({code})",
        f"az storage account network-rule add --account-name {account.name} "
        f"--ip-address {MY_ADDRESS}",
    )


def _first_line(error: Exception) -> str:
    lines = str(getattr(error, "message", error)).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
