"""The act `company`: a subscription that others control, and a head without a public address.

The login may write in two groups only, policies require a tag and allow neither a public address
nor a public storage account, and two administrators use a jump host in the network.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager

from rehearsal import shared_file
from rehearsal.addresses import ADMIN_ADDRESS, EXISTING_SUBNETS
from rehearsal.azure.blob.blob_proxy import HOST_SUFFIX
from rehearsal.azure.resources.resource_kinds import Resources
from rehearsal.azure.resources.subscription import Subscription
from rehearsal.azure.resources.virtual_network import private_endpoints
from rehearsal.backend import Backend, storage_accounts
from rehearsal.drivers.pulumi_cli import PulumiCli
from rehearsal.host_paths import ALLOWED, RUN
from rehearsal.machines.nspawn_machine import Machine, all_machines
from rehearsal.scenario import boot_logs, machine_faults, stack_changes
from rehearsal.scenario.context import IMAGE_WITH_ENVIRONMENT, Context, stack_config
from rehearsal.scenario.laptop import Laptop, Volley
from rehearsal.scenario.outcomes import UnexpectedError
from rehearsal.scenario.second_life import ExistingNetwork, check_way, make
from rehearsal.scenario.training_watch import until

CLUSTER, RESULTS = "team-rl", "team-results"
"""The resource groups that the company created."""
TAGS = {"costCenter": "rl"}
REMEDIES = {
    "Require a tag on resources": {"tags": json.dumps(TAGS)},
    "Not allowed resource types": {"publicIp": "false"},
    "Storage accounts should disable public network access": {"resultsPublicAccess": "false"},
}
"""By the policy that denies an `up`: the setting that satisfies it."""
LINE = "A policy of the subscription denies a resource: "
JUMP = "jump"
SIZES = ("Standard_D2as_v5", "Standard_D2s_v5")
"""Sizes of the workers; Azure has no capacity for the first."""
ADMINISTRATOR = "company"
SAVED_S = 90.0


def company(context: Context, driver: PulumiCli, existing: ExistingNetwork) -> str:
    """Runs `make up` with settings that policies deny, then with those that the company allows."""
    azure = Backend()
    groups = [
        make(azure, "resources", "ResourceGroup", {"resourceGroupName": name})
        for name in (CLUSTER, RESULTS)
    ]
    laptops = [context.laptop, Laptop(RUN / "colleague")]
    keys = "\n".join(laptop.public_key for laptop in laptops)
    public, private = _make_jump_host(azure, existing, keys)
    for laptop in laptops:
        with laptop.ssh_config.open("a") as file:
            file.write(f"Host {EXISTING_SUBNETS[0].replace('0/24', '*')}\n")
            file.write(f"ProxyJump {ADMINISTRATOR}@{public}\n")
    workspace = boot_logs.open_workspace(azure)
    context.config = {
        **stack_config(keys),
        "adminCidr": f"{private}/32",
        "image": IMAGE_WITH_ENVIRONMENT,
        "headSubnetId": existing.head_subnet,
        "workerSubnetId": existing.worker_subnet,
        "workerSize": SIZES[0],
        "otherWorkerSizes": json.dumps(SIZES[1:]),
        "resourceGroup": CLUSTER,
        "resultsResourceGroup": RESULTS,
        "resultsAccountId": "",
        "mlflowTrackingUri": "",
        "logAnalyticsWorkspaceId": workspace,
    }
    # The head gets a role on the workers' subnet and on the image.
    scopes = [*groups, existing.worker_subnet, IMAGE_WITH_ENVIRONMENT]
    with _company_decides(scopes):
        for policy, remedy in REMEDIES.items():
            _check_refused(driver, context.config, policy)
            context.config |= remedy
        with machine_faults.management_faults() as faults:
            faults.sold_out_sizes = SIZES[:1]
        report = stack_changes.up(context, minWorkers="1", maxWorkers="1")
    _check_made(azure.resources())
    for laptop in laptops:
        volley = Volley(laptop, driver.project)
        sizes = volley.ask("status")["workers"]["sizes"]
        if not volley.training() or sizes != {SIZES[1]: 1}:
            raise UnexpectedError(f"no training, or workers of the wrong sizes: {sizes}")
    seconds = _results_are_saved(context)
    boot_logs.check_arrive({machine.name for machine in all_machines()} - {JUMP})
    return (
        f"each policy is named; {report}; the worker is a {SIZES[1]}; both administrators use "
        f"the jump host; a first result came through the private endpoint after {seconds:.0f} s; "
        "each boot log is in the workspace"
    )


def destroy(context: Context) -> str:
    """Runs `destroy`: the company's resources and the results stay."""
    result = context.driver.destroy()
    if result.error:
        raise UnexpectedError(result.error)
    resources = Backend().resources()
    machines, results = [machine.name for machine in all_machines()], _in_group(resources, RESULTS)
    if machines != [JUMP] or _in_group(resources, CLUSTER) or not results:
        raise UnexpectedError(f"left: {', '.join([*machines, *resources])}")
    kinds = sorted(resource.kind for resource in results.values())
    return f"left: the groups, the jump host, {', '.join(kinds)}"


def _check_refused(driver: PulumiCli, config: dict[str, str], policy: str) -> None:
    """Runs `make up`, which must fail and name this policy."""
    policies = driver.make_up(config).error.rpartition(LINE)[2]
    if policy not in policies:
        raise UnexpectedError(f"not denied by {policy}: {policies}")


@contextmanager
def _company_decides(scopes: list[str]) -> Iterator[None]:
    subscription = Subscription(
        scopes=tuple(scopes),
        required_tags=tuple(TAGS),
        allowed_sizes=SIZES,
        denied_kinds=("PublicIPAddress",),
        private_accounts=True,
    )
    shared_file.write(ALLOWED, subscription)
    try:
        yield
    finally:
        ALLOWED.unlink()


def _make_jump_host(azure: Backend, existing: ExistingNetwork, keys: str) -> tuple[str, str]:
    """Creates a VM in the head's subnet; returns its public and its private address."""
    group = {"resourceGroupName": "theirs", "location": "eastus"}
    address = {"publicIpAddressName": JUMP, "publicIPAllocationMethod": "Static"}
    address_id = make(azure, "network", "PublicIPAddress", {**group, **address})
    ssh = {
        "name": "ssh",
        "direction": "Inbound",
        "access": "Allow",
        "priority": 100,
        "protocol": "Tcp",
        "sourceAddressPrefix": ADMIN_ADDRESS,
        "sourcePortRange": "*",
        "destinationAddressPrefix": "*",
        "destinationPortRange": "22",
    }
    nsg = {**group, "networkSecurityGroupName": JUMP, "securityRules": [ssh]}
    nsg_id = make(azure, "network", "NetworkSecurityGroup", nsg)
    configuration = {
        "name": JUMP,
        "subnet": {"id": existing.head_subnet},
        "publicIPAddress": {"id": address_id},
    }
    interface = {
        **group,
        "networkInterfaceName": JUMP,
        "networkSecurityGroup": {"id": nsg_id},
        "ipConfigurations": [configuration],
    }
    interface_id = make(azure, "network", "NetworkInterface", interface)
    profile = {
        "computerName": JUMP,
        "adminUsername": ADMINISTRATOR,
        "customData": base64.b64encode(b"#cloud-config\n{}\n").decode(),
        "linuxConfiguration": {
            "ssh": {"publicKeys": [{"keyData": key} for key in keys.splitlines()]}
        },
    }
    vm = {
        **group,
        "vmName": JUMP,
        "identity": {"userAssignedIdentities": []},
        "networkProfile": {"networkInterfaces": [{"id": interface_id}]},
        "hardwareProfile": {"vmSize": "Standard_D2as_v5"},
        "osProfile": profile,
    }
    make(azure, "compute", "VirtualMachine", vm)
    until(Machine(JUMP).cloud_init_done, 120, "the jump host is up")
    resources = azure.resources()
    (added,) = resources[interface_id].added["ipConfigurations"]
    return resources[address_id].added["ipAddress"], added["privateIPAddress"]


def _check_made(resources: Resources) -> None:
    """Checks that the stack has what the company requires, and nothing that it forbids."""
    made = {**_in_group(resources, CLUSTER), **_in_group(resources, RESULTS)}
    violations = [
        key
        for key, resource in made.items()
        if resource.kind == "PublicIPAddress"
        or ("location" in resource.inputs and not TAGS.items() <= resource.inputs["tags"].items())
    ]
    if violations:
        raise UnexpectedError(f"without a tag, or public: {', '.join(violations)}")


def _in_group(resources: Resources, name: str) -> Resources:
    prefix = f"/resourceGroups/{name}/"
    return {key: resource for key, resource in resources.items() if prefix in key}


def _results_are_saved(context: Context) -> float:
    """Waits for a run's first saved file, which can only come through the private endpoint."""
    account = context.outputs["resultsAccountId"].rpartition("/")[2]
    (endpoint,) = private_endpoints(Backend().resources())
    check_way(context.head, f"{account}{HOST_SUFFIX}", endpoint.address)
    return until(
        lambda: bool(storage_accounts().list(account, "results", "runs/")), SAVED_S, "a saved run"
    )
