"""The head: one VM with a public address, where Ray's head, MLflow and the training run."""

from __future__ import annotations

import pulumi
from pulumi_azure_native import compute, network

from infra import machine_parts as parts
from infra.boot.cloud_config import MachineEnvironment
from infra.common import Common
from infra.identity import Identities
from infra.network import Network
from infra.ray_ports import head_flags
from infra.results import CONTAINER, Results
from infra.settings import StackSettings

MLFLOW_PORT = 5000
REPLACED_BY = [
    "osProfile.customData",
    "osProfile.adminUsername",
    "osProfile.linuxConfiguration",
    "osProfile.computerName",
    "storageProfile.imageReference",
    "storageProfile.osDisk",
    "securityProfile",
    "priority",
    "evictionPolicy",
]
"""Azure changes none of these on a machine that exists; the preview says that it is replaced."""


class Head(pulumi.ComponentResource):
    """Address, network interface and VM of the head."""

    private_ip: pulumi.Output[str]
    """Where workers find Ray; it stays when the VM is replaced."""
    public_ip: pulumi.Output[str]

    def __init__(
        self,
        common: Common,
        settings: StackSettings,
        net: Network,
        identities: Identities,
        results: Results,
        grants: list[pulumi.Resource],
    ) -> None:
        super().__init__("volley:infra:Head", common.name("head"))
        self._common = common
        self.address = network.PublicIPAddress(
            common.name("head-ip"),
            resource_group_name=common.group,
            location=common.location,
            tags=common.tags,
            sku=network.PublicIPAddressSkuArgs(name="Standard"),
            public_ip_allocation_method="Static",
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.nic = self._network_interface(net)
        self.private_ip = self.nic.ip_configurations.apply(_private_ip)
        self.public_ip = self.address.ip_address.apply(str)
        data = pulumi.Output.all(
            ip=self.private_ip,
            account=results.account_name,
            account_address=results.address,
            token_container=results.token_container,
            client_id=identities.head.client_id,
        ).apply(lambda known: parts.custom_data(head_environment(settings, **known)))
        self.vm = self._virtual_machine(settings, identities, data, grants)
        self.register_outputs({"privateIp": self.private_ip, "publicIp": self.public_ip})

    def _network_interface(self, net: Network) -> network.NetworkInterface:
        nsg = None if net.head_nsg is None else network.NetworkSecurityGroupArgs(id=net.head_nsg)
        return network.NetworkInterface(
            self._common.name("head-nic"),
            resource_group_name=self._common.group,
            location=self._common.location,
            tags=self._common.tags,
            network_security_group=nsg,
            ip_configurations=[
                network.NetworkInterfaceIPConfigurationArgs(
                    name="head",
                    primary=True,
                    subnet=network.SubnetArgs(id=net.head_subnet),
                    private_ip_allocation_method="Dynamic",
                    public_ip_address=network.PublicIPAddressArgs(id=self.address.id),
                )
            ],
            opts=pulumi.ResourceOptions(parent=self),
        )

    def _virtual_machine(
        self,
        settings: StackSettings,
        identities: Identities,
        custom_data: pulumi.Output[str],
        grants: list[pulumi.Resource],
    ) -> compute.VirtualMachine:
        return compute.VirtualMachine(
            self._common.name("head"),
            resource_group_name=self._common.group,
            location=self._common.location,
            tags=self._common.tags,
            identity=compute.VirtualMachineIdentityArgs(
                type=compute.ResourceIdentityType.USER_ASSIGNED,
                user_assigned_identities=[identities.head.id],
            ),
            hardware_profile=compute.HardwareProfileArgs(vm_size=settings.head_size),
            storage_profile=compute.StorageProfileArgs(
                image_reference=parts.image(settings),
                # A managed disk: MLflow's database is on it, and a stopped head keeps it.
                os_disk=compute.OSDiskArgs(
                    create_option="FromImage",
                    delete_option="Delete",
                    disk_size_gb=settings.os_disk_gib,
                    managed_disk=compute.ManagedDiskParametersArgs(
                        storage_account_type="Premium_LRS"
                    ),
                ),
            ),
            os_profile=compute.OSProfileArgs(
                computer_name="head",
                admin_username=settings.admin_username,
                custom_data=custom_data,
                linux_configuration=parts.linux(settings),
            ),
            network_profile=compute.NetworkProfileArgs(
                network_interfaces=[
                    compute.NetworkInterfaceReferenceArgs(
                        # Detach: the interface is a resource of its own and outlives the VM.
                        id=self.nic.id,
                        primary=True,
                        delete_option="Detach",
                    )
                ]
            ),
            security_profile=parts.security(settings),
            diagnostics_profile=parts.boot_log(),
            scheduled_events_profile=parts.notice(settings.head_spot),
            **parts.eviction(settings.head_spot, "Deallocate"),
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=grants,
                replace_on_changes=REPLACED_BY,
                # The interface belongs to one VM at a time.
                delete_before_replace=True,
            ),
        )


def head_environment(
    settings: StackSettings,
    ip: str,
    account: str,
    account_address: str,
    token_container: str,
    client_id: str,
) -> MachineEnvironment:
    """Returns what the head has to know at boot."""
    loopback = f"http://127.0.0.1:{MLFLOW_PORT}"
    return MachineEnvironment(
        role="head",
        ray_start_flags=[
            f"--node-ip-address={ip}",
            "--dashboard-host=127.0.0.1",
            *head_flags(),
            *parts.object_store_flags(settings),
        ],
        results_account=account,
        results_address=account_address,
        results_container=CONTAINER,
        token_container=token_container,
        identity_client_id=client_id,
        mlflow_tracking_uri=settings.mlflow_tracking_uri or loopback,
        mlflow_elsewhere=bool(settings.mlflow_tracking_uri),
        num_env_runners=settings.num_env_runners,
        environment_variables=settings.environment_variables,
        pip_packages=settings.pip_packages,
        apt_packages=settings.apt_packages,
        shared_memory_gib=settings.shared_memory_gib,
    )


def _private_ip(configurations: object) -> str:
    assert isinstance(configurations, list)
    (first, *_) = configurations
    return str(first["private_ip_address"] if isinstance(first, dict) else first.private_ip_address)
