"""The packets that the NSGs on their way let through to each machine."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pulumi
import pytest

from infra.config.check_network import width_of_subnet
from rehearsal.azure.resources.azure_stand_in import Azure
from rehearsal.drivers.in_process import InProcess
from tests.infra.declared_stack import (
    EXISTING_CIDRS,
    EXISTING_SUBNETS,
    REQUIRED,
    SOMEBODY_ELSES,
    Declared,
    declare_stack,
)

Stack = Callable[[str], Declared]

HEAD, WORKER, OTHER_WORKER = "10.42.0.4", "10.42.1.4", "10.42.1.5"
ADMIN, STRANGER = "203.0.113.7", "198.51.100.99"
SOMEBODY_IN_THE_VNET = "10.42.77.7"
BETWEEN_NODES = {8076, 8077, 52366, *range(10100, 10200)}
"""The ports that Ray needs, found by closing them one by one on a working cluster."""


@pytest.fixture
def dev(stack: Stack) -> Declared:
    return stack("dev")


def test_the_administrator_reaches_ssh_on_the_head_and_nothing_else(dev: Declared) -> None:
    assert dev.open_ports(ADMIN, "head") == {22}


def test_every_administrator_reaches_ssh_on_the_head() -> None:
    team = declare_stack(adminCidr=f"{ADMIN}/32, {STRANGER}/32, {STRANGER}/32")
    assert team.open_ports(ADMIN, "head") == team.open_ports(STRANGER, "head") == {22}
    assert team.open_ports("198.51.100.98", "head") == set()


@pytest.mark.parametrize("source", [STRANGER, SOMEBODY_IN_THE_VNET, HEAD, "168.63.129.16"])
def test_nobody_else_reaches_the_head(dev: Declared, source: str) -> None:
    assert dev.open_ports(source, "head") == set()


def test_a_worker_reaches_rays_ports_on_the_head(dev: Declared) -> None:
    assert dev.open_ports(WORKER, "head") == BETWEEN_NODES | {6379}


@pytest.mark.parametrize("source", [HEAD, OTHER_WORKER])
def test_a_node_reaches_rays_ports_on_a_worker(dev: Declared, source: str) -> None:
    assert dev.open_ports(source, "worker0") == BETWEEN_NODES


@pytest.mark.parametrize("source", [ADMIN, STRANGER, SOMEBODY_IN_THE_VNET])
def test_nobody_else_reaches_a_worker(dev: Declared, source: str) -> None:
    assert dev.open_ports(source, "worker0") == set()


@pytest.mark.parametrize("source", [ADMIN, STRANGER, OTHER_WORKER, HEAD])
@pytest.mark.parametrize("protocol", ["udp", "icmp"])
@pytest.mark.parametrize("machine", ["head", "worker0"])
def test_nothing_but_tcp_is_open(dev: Declared, source: str, protocol: str, machine: str) -> None:
    assert dev.open_ports(source, machine, protocol) == set()


def test_a_head_without_a_public_address_is_reached_at_its_private_one(stack: Stack) -> None:
    private = stack("no public address")
    assert not private.all("PublicIPAddress")
    assert private.outputs["ssh"].endswith(" volley@172.16.1.4")
    assert private.open_ports("172.16.9.5", "head") == {22}
    assert private.open_ports(ADMIN, "head") == set()


@pytest.mark.parametrize(
    ("key", "machines"),
    [("headSubnetId", "every worker"), ("workerSubnetId", "the head and of every worker")],
)
def test_a_wide_existing_subnet_is_named_as_what_it_opens_ray_to(key: str, machines: str) -> None:
    text = width_of_subnet(key, "10.0.0.0/16")
    assert text is not None
    assert text.startswith(f"{key}: this subnet, 10.0.0.0/16, opens Ray's ports (")
    assert f"8076, 8077, 10100-10199, 52366) of {machines} to 65,536 addresses" in text
    assert width_of_subnet(key, "10.0.0.0/24") is None


def test_up_warns_of_a_wide_existing_subnet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(pulumi.log, "warn", said.append)
    azure = Azure(tmp_path / "azure.json")
    for resource_id, (kind, inputs) in SOMEBODY_ELSES.items():
        wide = {"addressPrefix": "172.16.0.0/20"} if resource_id.endswith("/two") else inputs
        azure.create(f"azure-native:network:{kind}", resource_id, wide)
    assert not InProcess(azure).up({**REQUIRED, **EXISTING_SUBNETS}).error
    (warning,) = said
    assert warning.startswith("workerSubnetId: this subnet, 172.16.0.0/20, opens Ray's ports (6379")


def test_in_subnets_of_somebody_else_the_same_ports_are_open(stack: Stack) -> None:
    declared = stack("existing vnet")
    assert declared.open_ports("172.16.2.9", "head") == BETWEEN_NODES | {6379}
    for source in ("172.16.1.9", "172.16.2.9"):
        assert declared.open_ports(source, "worker0") == BETWEEN_NODES
    assert declared.open_ports(ADMIN, "head") == {22}


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
