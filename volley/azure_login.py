"""Who asks Azure: the login that `make up` uses, by the variables of pulumi-azure-native.

https://www.pulumi.com/registry/packages/azure-native/installation-configuration/
"""

from __future__ import annotations

from collections.abc import Mapping

from azure.core.credentials import TokenCredential
from azure.identity import AzureCliCredential, ClientSecretCredential, ManagedIdentityCredential

CLIENT = ("ARM_CLIENT_ID", "ARM_CLIENT_SECRET", "ARM_TENANT_ID")


def credential(environment: Mapping[str, str], subscription: str) -> TokenCredential:
    """Returns the managed identity, the service principal, or the login of `az login`.

    Args:
        subscription: The head's, whose tenant need not be the one that `az` has selected.
    """
    if _uses_managed_identity(environment):
        return ManagedIdentityCredential(client_id=environment.get("ARM_CLIENT_ID"))
    if _uses_client(environment):
        client, secret, tenant = (environment[name] for name in CLIENT)
        return ClientSecretCredential(tenant, client, secret)
    return AzureCliCredential(subscription=subscription)


def how_to_log_in(environment: Mapping[str, str]) -> str:
    """Returns what to do about a login that Azure does not take."""
    if _uses_managed_identity(environment):
        return "unset ARM_USE_MSI, or give this machine the identity of ARM_CLIENT_ID"
    if _uses_client(environment):
        return f"correct {', '.join(CLIENT)}"
    return "az login"


def _uses_managed_identity(environment: Mapping[str, str]) -> bool:
    return environment.get("ARM_USE_MSI", "").lower() in {"true", "1"}


def _uses_client(environment: Mapping[str, str]) -> bool:
    return all(environment.get(name) for name in CLIENT)
