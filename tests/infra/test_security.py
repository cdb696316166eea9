"""Who reaches what, who may do what, and what no machine, state or log ever carries."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

from infra.identity import BLOB_DATA_CONTRIBUTOR, BLOB_DATA_READER
from tests.infra.nsg import Nsg
from tests.infra.stack import EXISTING_ACCOUNT, EXISTING_CIDRS, SSH_KEY, Declared, declare_stack

Stack = Callable[[str], Declared]

HEAD, WORKER, OTHER_WORKER = "10.42.0.4", "10.42.1.4", "10.42.1.5"
ADMIN, STRANGER = "203.0.113.7", "198.51.100.99"
SOMEBODY_IN_THE_VNET = "10.42.77.7"
BETWEEN_NODES = {8076, 8077, 52366, *range(10100, 10200)}
"""Found by removing ports one by one from a cluster that worked."""


@pytest.fixture
def head(stack: Stack) -> Nsg:
    return Nsg.of(stack("dev").one("NetworkSecurityGroup", "head"))


@pytest.fixture
def workers(stack: Stack) -> Nsg:
    return Nsg.of(stack("dev").one("NetworkSecurityGroup", "workers"))


# The network


def test_the_administrator_reaches_ssh_on_the_head_and_nothing_else(head: Nsg) -> None:
    assert head.open_ports(ADMIN) == {22}


@pytest.mark.parametrize("source", [STRANGER, SOMEBODY_IN_THE_VNET, HEAD, "168.63.129.16"])
def test_nobody_else_reaches_the_head(head: Nsg, source: str) -> None:
    assert head.open_ports(source) == set()


def test_a_worker_reaches_rays_ports_on_the_head(head: Nsg) -> None:
    assert head.open_ports(WORKER) == BETWEEN_NODES | {6379}


@pytest.mark.parametrize("source", [HEAD, OTHER_WORKER])
def test_a_node_reaches_rays_ports_on_a_worker(workers: Nsg, source: str) -> None:
    assert workers.open_ports(source) == BETWEEN_NODES


@pytest.mark.parametrize("source", [ADMIN, STRANGER, SOMEBODY_IN_THE_VNET])
def test_nobody_else_reaches_a_worker(workers: Nsg, source: str) -> None:
    assert workers.open_ports(source) == set()


@pytest.mark.parametrize("source", [ADMIN, STRANGER, WORKER, HEAD])
@pytest.mark.parametrize("protocol", ["Udp", "Icmp"])
def test_nothing_but_tcp_is_open(head: Nsg, workers: Nsg, source: str, protocol: str) -> None:
    assert head.open_ports(source, protocol) == workers.open_ports(source, protocol) == set()


def test_in_subnets_of_somebody_else_the_nsgs_lie_on_the_interfaces(stack: Stack) -> None:
    declared = stack("existing vnet")
    assert declared.one("NetworkInterface")["networkSecurityGroup"]
    profile = declared.one("VirtualMachineScaleSet")["virtualMachineProfile"]["networkProfile"]
    (interface,) = profile["networkInterfaceConfigurations"]
    assert interface["networkSecurityGroup"]


def test_in_subnets_of_somebody_else_the_nsgs_have_their_addresses(stack: Stack) -> None:
    rules = stack("existing vnet").one("NetworkSecurityGroup", "workers")["securityRules"]
    sources = {rule["sourceAddressPrefix"] for rule in rules if rule["access"] == "Allow"}
    assert sources == set(EXISTING_CIDRS.values())


def test_only_the_head_has_a_public_address(any_stack: Declared) -> None:
    assert "publicIPAddress" not in json.dumps(any_stack.one("VirtualMachineScaleSet"))


def test_subnets_have_no_way_out_but_the_nat_gateway(stack: Stack) -> None:
    for subnet in stack("dev").all("Subnet"):
        assert subnet.inputs["defaultOutboundAccess"] is False
        assert subnet.inputs["natGateway"]


# Machines


def profiles(declared: Declared) -> list[dict[str, object]]:
    """Of the head and of the workers."""
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
    assert account["minimumTlsVersion"] == "TLS1_2"
    assert account["isLocalUserEnabled"] is False


def test_the_results_account_lets_in_the_two_subnets_and_the_administrator(stack: Stack) -> None:
    rules = stack("dev").one("StorageAccount")["networkRuleSet"]
    assert rules["defaultAction"] == "Deny"
    assert rules["bypass"] == "None"
    assert len(rules["virtualNetworkRules"]) == 2
    assert [rule["iPAddressOrRange"] for rule in rules["ipRules"]] == [ADMIN]


@pytest.mark.parametrize(
    ("cidr", "rules"),
    [
        ("203.0.113.0/31", ["203.0.113.0", "203.0.113.1"]),
        ("203.0.113.0/24", ["203.0.113.0/24"]),
        ("10.1.2.3/32", []),
    ],
)
def test_the_storage_firewall_takes_no_small_and_no_private_networks(
    cidr: str, rules: list[str]
) -> None:
    account = declare_stack(adminCidr=cidr).one("StorageAccount")
    found = [rule["iPAddressOrRange"] for rule in account["networkRuleSet"].get("ipRules", [])]
    assert found == rules


@pytest.mark.parametrize("role", ["head", "worker"])
def test_an_account_that_exists_is_reached_by_a_private_endpoint(stack: Stack, role: str) -> None:
    declared = stack("existing results")
    (connection,) = declared.one("PrivateEndpoint")["privateLinkServiceConnections"]
    assert connection["privateLinkServiceId"] == EXISTING_ACCOUNT["resultsAccountId"]
    assert "10.42.0.9 oldresults.blob.core.windows.net" in declared.custom_data(role)


@pytest.mark.parametrize("name", ["results", "token"])
def test_no_container_is_public(stack: Stack, name: str) -> None:
    assert stack("dev").one("BlobContainer", name)["publicAccess"] == "None"


# Identities


def test_every_role_is_one_that_is_needed(stack: Stack) -> None:
    roles = {
        (r.inputs["principalId"], r.inputs["scope"], r.inputs["roleDefinitionId"].split("/")[-1])
        for r in stack("dev").all("RoleAssignment")
    }
    head, workers = "id of volley-dev-head", "id of volley-dev-workers"
    results, token = (f"/BlobContainer/volley-dev-{name}" for name in ("results", "token"))
    assert roles == {
        (head, results, BLOB_DATA_CONTRIBUTOR),
        (head, token, BLOB_DATA_CONTRIBUTOR),
        (workers, token, BLOB_DATA_READER),
    }


def test_every_role_says_why(any_stack: Declared) -> None:
    assert all(role.inputs["description"] for role in any_stack.all("RoleAssignment"))


# Secrets

SECRET = re.compile(
    r"PRIVATE KEY|AccountKey|SharedAccessSignature|sig=|password['\"]?\s*[:=]\s*['\"]?\w",
    re.IGNORECASE,
)


def test_no_input_carries_a_secret(any_stack: Declared) -> None:
    assert not SECRET.search(json.dumps([resource.inputs for resource in any_stack.resources]))


@pytest.mark.parametrize("role", ["head", "worker"])
def test_custom_data_carries_no_secret(any_stack: Declared, role: str) -> None:
    assert not SECRET.search(any_stack.custom_data(role))


def test_no_output_carries_a_secret(any_stack: Declared) -> None:
    assert not SECRET.search(json.dumps(any_stack.outputs))
