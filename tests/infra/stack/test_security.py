"""Logins, permissions, and the secrets that no machine, state or log may contain."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

from infra.stack.identity import (
    ACR_PULL,
    AUTOSCALE_WRITER,
    BLOB_DATA_CONTRIBUTOR,
    BLOB_DATA_READER,
    IDENTITY_OPERATOR,
    VM_CONTRIBUTOR,
)
from rehearsal.azure.resources.resource_kinds import SUBSCRIPTION
from tests.infra.declared_stack import (
    DISTANT_ACCOUNT,
    EXISTING_ACCOUNT,
    OTHER_SUBSCRIPTION,
    SSH_KEY,
    Declared,
    declare_stack,
)

Stack = Callable[[str], Declared]

ADMIN = "203.0.113.7"


# Machines


def profiles(declared: Declared) -> list[dict[str, object]]:
    """Returns the profiles of the head and of the workers."""
    scale_set = declared.one("VirtualMachineScaleSet")
    return [declared.one("VirtualMachine"), scale_set["virtualMachineProfile"]]


def test_nobody_logs_in_with_a_password(any_stack: Declared) -> None:
    for profile in profiles(any_stack):
        os_profile = profile["osProfile"]
        assert isinstance(os_profile, dict)
        assert "adminPassword" not in os_profile
        linux = os_profile["linuxConfiguration"]
        assert linux["disablePasswordAuthentication"] is True
        assert [key["keyData"] for key in linux["ssh"]["publicKeys"]] == [SSH_KEY]


def test_disks_are_encrypted_on_their_host(any_stack: Declared) -> None:
    for profile in profiles(any_stack):
        security = profile["securityProfile"]
        assert isinstance(security, dict)
        assert security["encryptionAtHost"] is True


# Storage


def test_the_results_account_is_closed(stack: Stack) -> None:
    account = stack("dev").one("StorageAccount")
    assert account["allowBlobPublicAccess"] is False
    assert account["allowSharedKeyAccess"] is False
    assert account["enableHttpsTrafficOnly"] is True
    assert account["minimumTlsVersion"] == "TLS1_2"
    assert account["isLocalUserEnabled"] is False


def test_the_results_account_lets_in_the_two_subnets_and_the_administrator(stack: Stack) -> None:
    rules = stack("dev").one("StorageAccount")["networkRuleSet"]
    assert rules["defaultAction"] == "Deny"
    # Azure's own lifecycle rules; see tests/rehearsal/azure/blob/test_billing.py.
    assert rules["bypass"] == "AzureServices"
    assert len(rules["virtualNetworkRules"]) == 2
    assert [rule["iPAddressOrRange"] for rule in rules["ipRules"]] == [ADMIN]


@pytest.mark.parametrize(
    ("cidr", "rules"),
    [
        ("203.0.113.0/31", ["203.0.113.0", "203.0.113.1"]),
        ("203.0.113.0/24", ["203.0.113.0/24"]),
        ("198.51.100.9/32, 203.0.113.0/25,203.0.113.128/25", ["198.51.100.9", "203.0.113.0/24"]),
        ("10.1.2.3/32", []),
        ("128.0.0.0/1", []),
    ],
)
def test_the_storage_firewall_takes_no_small_no_private_and_no_huge_networks(
    cidr: str, rules: list[str]
) -> None:
    account = declare_stack(adminCidr=cidr, allowPublicSsh="true").one("StorageAccount")
    found = [rule["iPAddressOrRange"] for rule in account["networkRuleSet"].get("ipRules", [])]
    assert found == rules


@pytest.mark.parametrize("role", ["head", "worker"])
def test_an_account_that_exists_is_reached_by_a_private_endpoint(stack: Stack, role: str) -> None:
    declared = stack("existing results")
    endpoint = declared.resource("PrivateEndpoint")
    (connection,) = endpoint.inputs["privateLinkServiceConnections"]
    assert connection["privateLinkServiceId"] == EXISTING_ACCOUNT["resultsAccountId"]
    (address,) = endpoint.added["customDnsConfigs"][0]["ipAddresses"]
    assert f"{address} oldresults.blob.core.windows.net" in declared.custom_data(role)


def test_an_account_that_exists_is_used_in_its_own_subscription(stack: Stack) -> None:
    declared = stack("results of another subscription")
    assert declared.resource("BlobContainer", "token").subscription == OTHER_SUBSCRIPTION
    (connection,) = declared.one("PrivateEndpoint")["privateLinkServiceConnections"]
    assert connection["privateLinkServiceId"] == DISTANT_ACCOUNT["resultsAccountId"]
    assert declared.resource("PrivateEndpoint").subscription == SUBSCRIPTION


def test_an_account_of_the_stacks_subscription_needs_no_provider_of_its_own(stack: Stack) -> None:
    assert stack("existing results").providers == []


def test_what_is_left_of_a_stack_is_found_by_its_tags(stack: Stack) -> None:
    # docs/azure.md searches for these tags.
    assert stack("dev").one("StorageAccount")["tags"] == {"project": "volley", "stack": "dev"}


@pytest.mark.parametrize("name", ["results", "token", "environments"])
def test_no_container_is_public(stack: Stack, name: str) -> None:
    assert stack("dev").one("BlobContainer", name)["publicAccess"] == "None"


# Identities


def test_every_role_is_one_that_is_needed(stack: Stack) -> None:
    declared = stack("dev")
    roles = {
        (r.inputs["principalId"], r.inputs["scope"], r.inputs["roleDefinitionId"].split("/")[-1])
        for r in declared.all("RoleAssignment")
    }
    head, mlflow, workers = (
        declared.resource("UserAssignedIdentity", role).added["principalId"]
        for role in ("head", "mlflow", "workers")
    )
    results, token, environments = (
        declared.resource("BlobContainer", name).id for name in ("results", "token", "environments")
    )
    assert roles == {
        (head, results, BLOB_DATA_CONTRIBUTOR),
        (mlflow, results, BLOB_DATA_CONTRIBUTOR),
        (head, token, BLOB_DATA_CONTRIBUTOR),
        (workers, token, BLOB_DATA_READER),
        (head, environments, BLOB_DATA_CONTRIBUTOR),
        (workers, environments, BLOB_DATA_READER),
        (head, declared.resource("VirtualMachine").id.partition("/providers/")[0], VM_CONTRIBUTOR),
        (head, declared.resource("UserAssignedIdentity", "workers").id, IDENTITY_OPERATOR),
        (head, declared.resource("AutoscaleSetting").id, AUTOSCALE_WRITER),
    }


def test_a_container_registry_lets_the_machines_pull_and_no_more(stack: Stack) -> None:
    roles = [r.inputs for r in stack("everything set").all("RoleAssignment")]
    of_registry = [role for role in roles if role["scope"].endswith("/registries/Images")]
    identities = {role["principalId"] for role in of_registry}
    assert len(identities) == 2
    assert {role["roleDefinitionId"].rpartition("/")[2] for role in of_registry} == {ACR_PULL}


@pytest.mark.parametrize("name", ["dev", "results of another subscription"])
def test_a_role_is_named_in_the_subscription_where_it_is_assigned(stack: Stack, name: str) -> None:
    for role in stack(name).all("RoleAssignment"):
        there = role.inputs["scope"].split("/")[2]
        assert role.inputs["roleDefinitionId"].startswith(f"/subscriptions/{there}/providers/")


def test_every_role_says_why(any_stack: Declared) -> None:
    assert all(role.inputs["description"] for role in any_stack.all("RoleAssignment"))


# Secrets

# A SAS carries its signature as a query parameter; base64 may end in "sig=" by chance.
SECRET = re.compile(
    r"PRIVATE KEY|AccountKey|SharedAccessSignature|[?&]sig=|password['\"]?\s*[:=]\s*['\"]?\w",
    re.IGNORECASE,
)


def test_a_sas_is_a_secret_and_base64_is_not() -> None:
    assert SECRET.search("https://account.blob.core.windows.net/runs?sp=r&sig=w%2Bq")
    assert not SECRET.search("UEsDBBQAAAAIAsIg=")


def test_no_input_carries_a_secret(any_stack: Declared) -> None:
    assert not SECRET.search(json.dumps([resource.inputs for resource in any_stack.resources]))


@pytest.mark.parametrize("role", ["head", "worker"])
def test_custom_data_carries_no_secret(any_stack: Declared, role: str) -> None:
    assert not SECRET.search(any_stack.custom_data(role))


def test_no_output_carries_a_secret(any_stack: Declared) -> None:
    assert not SECRET.search(json.dumps(any_stack.outputs))
