"""The head's VM in Azure: its power state, and its start, by the login that `volley up` uses.

https://learn.microsoft.com/rest/api/compute/virtual-machines/start
https://www.pulumi.com/registry/packages/azure-native/installation-configuration/
"""

import logging
import os
import ssl
import time
from collections.abc import Callable, Mapping

import certifi
from azure.core.credentials import AccessToken, TokenCredential
from azure.core.exceptions import AzureError, ClientAuthenticationError
from azure.identity import AzureCliCredential, ClientSecretCredential, ManagedIdentityCredential

from head.resource_manager import (
    NO_ANSWER,
    NOT_LOGGED_IN,
    PUBLIC_CLOUD,
    ResourceManager,
    ResourceManagerError,
)
from payload.errors import UserError
from volley.errors import refused

API_VERSION = {"api-version": "2024-07-01"}
FORBIDDEN, NOT_FOUND = 403, 404
RUNNING = "PowerState/running"
POLL_S = 5.0
"""Pause between two polls of the start, if Azure names no time."""
NO_CAPACITY = (
    "AllocationFailed",
    "OverconstrainedAllocationRequest",
    "OverconstrainedZonalAllocationRequest",
    "SkuNotAvailable",
    "ZonalAllocationFailed",
)
"""https://learn.microsoft.com/troubleshoot/azure/virtual-machines/windows/allocation-failure"""


CLIENT = ("ARM_CLIENT_ID", "ARM_CLIENT_SECRET", "ARM_TENANT_ID")


def credential(environment: Mapping[str, str], subscription: str | None) -> TokenCredential:
    """Returns the managed identity, the service principal, or the login of `az login`.

    Args:
        subscription: The head's, whose tenant need not be the one that `az` has selected; None
            for that one.
    """
    if _uses_managed_identity(environment):
        return ManagedIdentityCredential(client_id=environment.get("ARM_CLIENT_ID"))
    if _uses_client(environment):
        client, secret, tenant = (environment[name] for name in CLIENT)
        return ClientSecretCredential(tenant, client, secret)
    return AzureCliCredential(subscription=subscription)


def how_to_log_in(environment: Mapping[str, str]) -> str:
    """Returns what to do about a login that Azure does not accept."""
    if _uses_managed_identity(environment):
        return "unset ARM_USE_MSI, or give this machine the identity of ARM_CLIENT_ID"
    if _uses_client(environment):
        return f"correct {', '.join(CLIENT)}"
    return "az login"


def _uses_managed_identity(environment: Mapping[str, str]) -> bool:
    return environment.get("ARM_USE_MSI", "").lower() in {"true", "1"}


def _uses_client(environment: Mapping[str, str]) -> bool:
    return all(environment.get(name) for name in CLIENT)


class Login:
    """A credential of azure-identity, whose errors are those of ResourceManager."""

    def __init__(self, credential: TokenCredential) -> None:
        self._credential = credential

    def get_token(self, *scopes: str) -> AccessToken:
        try:
            return self._credential.get_token(*scopes)
        except ClientAuthenticationError as error:
            raise ResourceManagerError(NOT_LOGGED_IN, "", _first_line(error)) from None
        except AzureError as error:
            raise OSError(_first_line(error)) from None


class HeadMachine:
    def __init__(
        self, head_id: str, login: TokenCredential, environment: Mapping[str, str]
    ) -> None:
        """
        Args:
            head_id: The VM's resource id.
            environment: The variables of pulumi-azure-native; ARM_ENDPOINT is the endpoint outside
                the public cloud.
        """
        self._id, self._environment = head_id, environment
        # As for azure-identity: Python on macOS need not know the system's certificates.
        trusted = environment.get("REQUESTS_CA_BUNDLE") or certifi.where()
        is_folder = os.path.isdir(trusted)
        try:
            context = ssl.create_default_context(
                cafile=None if is_folder else trusted, capath=trusted if is_folder else None
            )
        except OSError as error:
            raise UserError(f"REQUESTS_CA_BUNDLE: {trusted}: {error.strerror or error}") from None
        self._azure = ResourceManager(
            Login(login),
            environment.get("ARM_ENDPOINT", PUBLIC_CLOUD),
            context,
        )

    def is_running(self) -> bool:
        """Whether the VM is running; raises as `power_state`."""
        return self.power_state() == RUNNING

    def power_state(self) -> str:
        """Returns Azure's code, "PowerState/running" for example; a sleeping head is deallocated.

        Raises:
            UserError: Azure refuses, or does not answer.
        """
        try:
            vm = self._azure.get(self._id, {**API_VERSION, "$expand": "instanceView"})
        except ResourceManagerError as error:
            raise self._in_words(error) from None
        statuses = vm["properties"]["instanceView"]["statuses"]
        codes = [str(status["code"]) for status in statuses]
        return next((code for code in codes if code.startswith("PowerState/")), "")

    def start(self, waiting: Callable[[], None]) -> None:
        """Starts the VM; returns when Azure reports that it is running.

        Args:
            waiting: Called before each poll of the start.

        Raises:
            UserError: Azure refuses, has no capacity for this size, or does not answer.
        """
        try:
            # Starting a VM twice has no effect, so the request may be repeated.
            url = self._azure.write(
                "POST", f"{self._id}/start", API_VERSION, body={}, repeatable=True
            )
            pause_s = POLL_S
            while url:
                waiting()
                time.sleep(pause_s)
                operation = self._azure.operation(url)
                if operation.status == "Succeeded":
                    return
                if operation.ended:
                    raise _not_started(operation.code, operation.message)
                pause_s = operation.retry_after_s or POLL_S
        except ResourceManagerError as error:
            raise self._in_words(error) from None

    def _in_words(self, error: ResourceManagerError) -> UserError:
        """Returns an error of Azure as people read it."""
        message = error.message.rstrip(".")
        if error.status == NO_ANSWER:
            return refused(message, "volley start")
        if error.status == NOT_LOGGED_IN:
            login = how_to_log_in(self._environment)
            return refused(f"not logged in to Azure: {message}", login)
        if error.status == FORBIDDEN:
            group = self._id.partition("/providers/")[0]
            return refused(
                f"your Azure login may not start the head: {message}",
                "an owner of the subscription types: az role assignment create "
                f'--role "Virtual Machine Contributor" --scope {group} --assignee YOU',
            )
        if error.status == NOT_FOUND:
            return refused(f"the head does not exist in Azure: {message}", "volley up")
        return _not_started(error.code, message)


def head_machine(head_id: str) -> HeadMachine:
    """Returns the VM with this resource id, for the login of `volley up`."""
    # A credential also logs the text of the errors that it raises.
    logging.getLogger("azure").addHandler(logging.NullHandler())
    login = credential(os.environ, subscription=head_id.split("/")[2])
    return HeadMachine(head_id, login, os.environ)


def _not_started(code: str, message: str) -> UserError:
    later = "volley start, in some minutes"
    if code in NO_CAPACITY:
        return refused(f"Azure has no capacity for the head's VM size now ({code})", later)
    reason = ": ".join(text for text in (code, message.rstrip(".")) if text)
    return refused(f"Azure did not start the head: {reason or 'it gave no reason'}", later)


def _first_line(error: AzureError) -> str:
    lines = str(error.message).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
