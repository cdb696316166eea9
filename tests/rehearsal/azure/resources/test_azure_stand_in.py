"""The existing resources, and the properties that Azure adds to a resource's inputs."""

from __future__ import annotations

from pathlib import Path

import pytest

from rehearsal.azure.azure_errors import AzureError
from rehearsal.azure.resources.azure_stand_in import Azure
from rehearsal.azure.resources.resource_kinds import KINDS, Properties

SUBNET = "/vnet/subnets/head"
SUBNET_INPUTS: Properties = {"addressPrefix": "10.42.0.0/24"}
NIC: Properties = {"ipConfigurations": [{"subnet": {"id": SUBNET}}]}


@pytest.fixture
def azure(tmp_path: Path) -> Azure:
    made = Azure(tmp_path / "azure.json")
    made.create("azure-native:network:Subnet", SUBNET, SUBNET_INPUTS)
    return made


SIZED = {"hardwareProfile": {"vmSize": "Standard_D2as_v5"}}


def make(azure: Azure, kind: str, resource_id: str, inputs: Properties) -> Properties:
    return azure.create(f"azure-native:any:{kind}", resource_id, inputs)


def address_of(interface: Properties) -> str:
    (configuration,) = interface["ipConfigurations"]
    return str(configuration["privateIPAddress"])


def test_what_exists_is_not_made_again(azure: Azure) -> None:
    with pytest.raises(AzureError, match=f"already existing resource '{SUBNET}'"):
        make(azure, "Subnet", SUBNET, {})
    assert azure.resources()[SUBNET].inputs == SUBNET_INPUTS


def test_another_process_knows_what_exists(azure: Azure) -> None:
    assert Azure(azure.state_file.path).resources() == azure.resources() != {}


def test_every_resource_has_the_name_of_its_id(azure: Azure) -> None:
    assert make(azure, "NatGateway", "/groups/g/nat-1", {}) == {"name": "nat-1"}


def test_identities_are_answered_as_keys(azure: Azure) -> None:
    identity = {"type": "UserAssigned", "userAssignedIdentities": ["/one"]}
    added = make(azure, "RunCommand", "/g/vm-1", {"identity": identity})
    answered = {"type": "UserAssigned", "userAssignedIdentities": {"/one": {}}}
    assert added["identity"] == answered
    assert azure.update("/g/vm-1", {"identity": identity})["identity"] == answered


def test_each_interface_and_endpoint_has_an_address_of_its_own(azure: Azure) -> None:
    first, second = (address_of(make(azure, "NetworkInterface", f"/{n}", NIC)) for n in "ab")
    endpoint = make(azure, "PrivateEndpoint", "/e", {"subnet": {"id": SUBNET}})
    (third,) = endpoint["customDnsConfigs"][0]["ipAddresses"]
    assert [first, second, third] == ["10.42.0.4", "10.42.0.5", "10.42.0.6"]


def test_an_interface_keeps_its_address_and_a_new_one_gets_what_is_free(azure: Azure) -> None:
    for name in "ab":
        make(azure, "NetworkInterface", f"/{name}", NIC)
    azure.delete("/a")
    assert address_of(azure.update("/b", {**NIC, "tags": {"a": "b"}})) == "10.42.0.5"
    assert address_of(make(azure, "NetworkInterface", "/c", NIC)) == "10.42.0.4"


def test_public_addresses_are_different_and_stay(azure: Azure) -> None:
    first, second = (make(azure, "PublicIPAddress", f"/{n}", {})["ipAddress"] for n in "ab")
    azure.delete("/a")
    assert first != second == azure.update("/b", {})["ipAddress"]


def test_identities_are_different(azure: Azure) -> None:
    added = [make(azure, "UserAssignedIdentity", f"/{n}", {}) for n in "ab"]
    assert (
        len({properties[key] for properties in added for key in ("clientId", "principalId")}) == 4
    )


def test_a_vm_keeps_its_id_and_a_replaced_one_has_another(azure: Azure) -> None:
    first = make(azure, "VirtualMachine", "/g/head", SIZED)["vmId"]
    assert azure.update("/g/head", SIZED)["vmId"] == first
    azure.delete("/g/head")
    assert make(azure, "VirtualMachine", "/g/head", SIZED)["vmId"] != first


def test_what_is_deleted_takes_with_it_what_is_in_it(azure: Azure) -> None:
    make(azure, "VirtualNetwork", "/vnet", {})
    make(azure, "VirtualNetwork", "/vnet2", {})
    azure.delete("/vnet")
    assert list(azure.resources()) == ["/vnet2"]


def test_a_failing_change_changes_nothing(azure: Azure, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("no bridge")

    before = azure.resources()
    monkeypatch.setattr(Azure, "apply", fail)
    for change in (lambda: azure.update(SUBNET, {}), lambda: azure.delete(SUBNET)):
        with pytest.raises(OSError, match="no bridge"):
            change()
    assert azure.resources() == before


def test_a_subnet_that_exists_is_looked_up(tmp_path: Path) -> None:
    azure = Azure(tmp_path / "azure.json")
    names = {"resourceGroupName": "g", "virtualNetworkName": "v", "subnetName": "s"}
    with pytest.raises(AzureError, match=r"virtualNetworks/v/subnets/s' was not found"):
        azure.invoke("azure-native:network:getSubnet", names)
    make(azure, "Subnet", KINDS["Subnet"].resource_id(names), SUBNET_INPUTS)
    assert azure.invoke("azure-native:network:getSubnet", names) == SUBNET_INPUTS


def test_an_unknown_function_is_named(azure: Azure) -> None:
    with pytest.raises(AzureError, match="azure-native:quantum:getSuiteOffer"):
        azure.invoke("azure-native:quantum:getSuiteOffer", {})
