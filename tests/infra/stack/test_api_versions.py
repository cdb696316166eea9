"""The Azure API version behind each type; an upgrade that changes one fails here."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path

from tests.infra.declared_stack import Declared

API_VERSIONS = {
    "AutoscaleSetting": "2021-05-01",
    "BlobContainer": "2024-01-01",
    "BlobServiceProperties": "2024-01-01",
    "Budget": "2024-08-01",
    "ManagementPolicy": "2024-01-01",
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

TRUSTED_LAUNCH_BY_DEFAULT = "2025-11-01"


def test_every_type_is_declared_with_the_listed_version(any_stack: Declared) -> None:
    found = {resource.type: api_version(resource.token) for resource in any_stack.resources}
    assert found == {kind: API_VERSIONS[kind] for kind in found}


def test_secure_boot_is_off_in_every_version(any_stack: Declared) -> None:
    """The image's NVIDIA driver is not signed, so it does not load with Secure Boot.

    Before 2025-11-01 a machine without a security type has no Secure Boot, and "Standard" needs a
    subscription feature. From then on Secure Boot is the default, and "Standard" turns it off:
    https://learn.microsoft.com/azure/virtual-machines/trusted-launch
    """
    for kind in ("VirtualMachine", "VirtualMachineScaleSet"):
        for resource in any_stack.all(kind):
            inputs = resource.inputs.get("virtualMachineProfile", resource.inputs)
            security = inputs["securityProfile"]
            if security.get("securityType") == "TrustedLaunch":
                assert not security["uefiSettings"]["secureBootEnabled"]
            else:
                by_default = api_version(resource.token) >= TRUSTED_LAUNCH_BY_DEFAULT
                assert security.get("securityType") == ("Standard" if by_default else None)


def api_version(token: str) -> str:
    """Returns the SDK's API version of a type, such as "azure-native:compute:VirtualMachine"."""
    _, module, name = token.split(":")
    kind = getattr(importlib.import_module(f"pulumi_azure_native.{module}"), name)
    text = Path(inspect.getfile(kind)).read_text()
    (version, *_) = re.findall(r"Uses Azure REST API version (\d{4}-\d\d-\d\d)", text)
    return str(version)
