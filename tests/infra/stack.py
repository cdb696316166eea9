"""A stack declared on Pulumi's mocks: every resource with the inputs that Azure would get."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi.runtime import MockCallArgs, MockResourceArgs, Mocks
from pulumi.runtime.mocks import MockMonitor
from pulumi.runtime.stack import wait_for_rpcs

from infra.__main__ import declare
from infra.config.read import read_settings
from infra.training import training_script
from tests.project import ROOT

SUBSCRIPTION = "00000000-0000-0000-0000-000000000001"
SSH_KEY = (
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIwGzXhPLKgDKrCIkuCt8jYwPCgPQLBKxNJCMqdIHIYB admin@laptop"
)
REQUIRED = {"adminCidr": "203.0.113.7/32", "sshPublicKey": SSH_KEY}
GROUP = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/theirs/providers"
VNET = f"{GROUP}/Microsoft.Network/virtualNetworks/vnet/subnets"
EXISTING_SUBNETS = {"headSubnetId": f"{VNET}/one", "workerSubnetId": f"{VNET}/two"}
EXISTING_CIDRS = {"one": "172.16.1.0/24", "two": "172.16.2.0/24"}
EXISTING_ACCOUNT = {"resultsAccountId": f"{GROUP}/Microsoft.Storage/storageAccounts/oldresults"}
OTHER_SUBSCRIPTION = SUBSCRIPTION.replace("1", "2")
DISTANT_ACCOUNT = {
    key: account.replace(SUBSCRIPTION, OTHER_SUBSCRIPTION)
    for key, account in EXISTING_ACCOUNT.items()
}
"""In another subscription."""


@dataclass(frozen=True)
class Resource:
    """One declared resource."""

    type: str
    """The last part of its type, "VirtualMachine"."""
    token: str
    name: str
    inputs: dict[str, Any]
    options: Any
    """The engine's RegisterResourceRequest: retainOnDelete, replaceOnChanges, dependencies ..."""

    @property
    def id(self) -> str:
        return resource_id(self.type, self.name)

    @property
    def waits_for(self) -> set[str]:
        """The names of the resources that are made before this one."""
        return {urn.rpartition("::")[2] for urn in self.options.dependencies}


@dataclass(frozen=True)
class Declared:
    """A whole stack."""

    resources: list[Resource]
    outputs: dict[str, Any]
    subscriptions: dict[str, str]
    """Of each provider of the program's own, by its name."""

    def all(self, kind: str) -> list[Resource]:
        return [resource for resource in self.resources if resource.type == kind]

    def resource(self, kind: str, name: str = "") -> Resource:
        """The only resource of a type whose name contains `name`."""
        (found,) = [resource for resource in self.all(kind) if name in resource.name]
        return found

    def one(self, kind: str, name: str = "") -> dict[str, Any]:
        """The inputs of the only resource of a type whose name contains `name`."""
        return self.resource(kind, name).inputs

    def by_id(self, wanted: str) -> Resource:
        (found,) = [resource for resource in self.resources if resource.id == wanted]
        return found

    def subscription(self, resource: Resource) -> str:
        """Where a resource is made: the subscription of its own provider, or the stack's."""
        provider = str(resource.options.provider).rpartition("::")[0].rpartition("::")[2]
        return self.subscriptions.get(provider, SUBSCRIPTION)

    def custom_data(self, role: str) -> str:
        if role == "head":
            profile = self.one("VirtualMachine")["osProfile"]
        else:
            profile = self.one("VirtualMachineScaleSet")["virtualMachineProfile"]["osProfile"]
        return base64.b64decode(profile["customData"]).decode()


def resource_id(kind: str, name: str) -> str:
    """The id that a resource gets here."""
    return f"/subscriptions/{SUBSCRIPTION}/{kind}/{name}"


def declare_stack(stack_name: str = "dev", **config: str) -> Declared:
    """Declares a stack with this configuration besides what is required."""
    azure = _Azure()
    monitor = _Monitor(azure)
    known: dict[str, Any] = {}

    async def run() -> None:
        settings = read_settings({**REQUIRED, **config}, ROOT)
        pulumi.runtime.set_mocks(azure, project="volley", stack=stack_name, monitor=monitor)
        outputs = declare(settings, training_script(settings, ROOT))
        pulumi.Output.all(**outputs).apply(known.update)
        await wait_for_rpcs()

    asyncio.run(run())
    resources = [
        Resource(token.split(":")[-1], token, name, inputs, monitor.requests[token, name])
        for token, name, inputs in azure.made
    ]
    return Declared(resources, known, azure.subscriptions)


class _Monitor(MockMonitor):
    """Keeps the options, which the mocks do not show."""

    def __init__(self, mocks: Mocks) -> None:
        super().__init__(mocks)
        self.requests: dict[tuple[str, str], Any] = {}

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802
        self.requests[request.type, request.name] = request
        return super().RegisterResource(request)


class _Azure(Mocks):
    """Answers as Azure does where the program reads what Azure has chosen."""

    def __init__(self) -> None:
        self.made: list[tuple[str, str, dict[str, Any]]] = []
        self.subscriptions: dict[str, str] = {}

    def new_resource(self, args: MockResourceArgs) -> tuple[str, dict[str, Any]]:
        kind = args.typ.split(":")[-1]
        if args.typ.startswith("azure-native:"):
            self.made.append((args.typ, args.name, args.inputs))
        if args.typ == "pulumi:providers:azure-native":
            self.subscriptions[args.name] = args.inputs["subscriptionId"]
        state = {"name": args.name, **args.inputs}
        if kind == "PublicIPAddress":
            state["ipAddress"] = "198.51.100.20"
        if kind == "NetworkInterface":
            state["ipConfigurations"] = [
                {**state["ipConfigurations"][0], "privateIPAddress": "10.42.0.4"}
            ]
        if kind == "PrivateEndpoint":
            state["customDnsConfigs"] = [{"ipAddresses": ["10.42.0.9"]}]
        if kind == "UserAssignedIdentity":
            state |= {"clientId": f"client of {args.name}", "principalId": f"id of {args.name}"}
        if "identity" in state:
            ids: dict[str, Any] = {key: {} for key in state["identity"]["userAssignedIdentities"]}
            state["identity"] = {**state["identity"], "userAssignedIdentities": ids}
        return resource_id(kind, args.name), state

    def call(self, args: MockCallArgs) -> Any:
        if args.token.endswith("getClientConfig"):
            return {"subscriptionId": SUBSCRIPTION, "clientId": "", "objectId": "", "tenantId": ""}
        # Azure answers a subnet's addresses as the subnet was made: one prefix, or a list.
        name = args.args["subnetName"]
        cidr = EXISTING_CIDRS[name]
        return {"addressPrefix": cidr} if name == "one" else {"addressPrefixes": [cidr]}
