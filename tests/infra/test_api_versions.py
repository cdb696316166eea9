"""The version of Azure's API behind each type: an upgrade of azure-native that changes one shows.

A newer version may have other defaults. Of VMs and scale sets it is Trusted Launch with Secure Boot
where the image supports it, and then NVIDIA's driver, which is not signed, is not loaded:
https://learn.microsoft.com/azure/virtual-machines/trusted-launch
"""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path

from tests.infra.stack import Declared

API_VERSIONS = {
    "BlobContainer": "2024-01-01",
    "NatGateway": "2024-05-01",
    "NetworkInterface": "2024-05-01",
    "NetworkSecurityGroup": "2024-05-01",
    "PrivateEndpoint": "2024-05-01",
    "PublicIPAddress": "2024-05-01",
    "ResourceGroup": "2024-03-01",
    "RoleAssignment": "2022-04-01",
    "StorageAccount": "2024-01-01",
    "Subnet": "2024-05-01",
    "UserAssignedIdentity": "2023-01-31",
    "VirtualMachine": "2024-11-01",
    "VirtualMachineRunCommandByVirtualMachine": "2024-11-01",
    "VirtualMachineScaleSet": "2024-11-01",
    "VirtualNetwork": "2024-05-01",
}


def test_every_type_is_declared_with_the_listed_version(any_stack: Declared) -> None:
    found = {resource.type: api_version(resource.token) for resource in any_stack.resources}
    assert found == {kind: API_VERSIONS[kind] for kind in found}


def api_version(token: str) -> str:
    """Returns what the SDK says of "azure-native:compute:VirtualMachine"."""
    _, module, name = token.split(":")
    kind = getattr(importlib.import_module(f"pulumi_azure_native.{module}"), name)
    text = Path(inspect.getfile(kind)).read_text()
    (version, *_) = re.findall(r"Uses Azure REST API version (\d{4}-\d\d-\d\d)", text)
    return str(version)
