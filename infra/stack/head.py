"""The head: one VM, where Ray's head, MLflow and the training run."""

import base64
import json
from functools import partial
from typing import Any

import pulumi
from pulumi_azure_native import compute, network

from infra.config.cost import hourly
from infra.config.stack_settings import StackSettings
from infra.stack import vm_arguments as parts
from infra.stack.machine_environment import Prerequisites, custom_data, head_environment
from infra.stack.network import Network

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
    # Azure refuses some resizes (to a size without a local disk) and reboots for the others.
    "hardwareProfile.vmSize",
]
"""Properties that Azure cannot change in place; the preview says that the VM is replaced."""

SILENT_HOURS = 3
"""A head deallocates itself if no check of head.sleep has worked for so long."""


class Head(pulumi.ComponentResource):
    """Address, network interface and VM of the head."""

    private_ip: pulumi.Output[str]
    """The address where workers connect to Ray; it stays when the VM is replaced."""
    ssh_address: pulumi.Output[str]
    """The public address, or the private one of a head that has no other."""

    def __init__(self, prerequisites: Prerequisites) -> None:
        naming, identities = prerequisites.naming, prerequisites.identities
        super().__init__("volley:infra:Head", naming.name("head"), opts=naming.in_cluster)
        self._prerequisites = prerequisites
        self._naming = naming
        address = self._public_address() if prerequisites.settings.public_ip else None
        self.nic = self._network_interface(prerequisites.network, address)
        self.private_ip = self.nic.ip_configurations.apply(_private_ip)
        self.ssh_address = address.ip_address.apply(str) if address else self.private_ip
        data = custom_data(head_environment, prerequisites, identities.head, self.private_ip)
        self.vm = self._virtual_machine(data)
        self.image: pulumi.Output[str] = self.vm.storage_profile.apply(
            partial(_with_version, prerequisites.settings.image)
        )
        self.register_outputs({"privateIp": self.private_ip, "sshAddress": self.ssh_address})

    def _public_address(self) -> network.PublicIPAddress:
        return network.PublicIPAddress(
            self._naming.name("head-ip"),
            **self._naming.in_group,
            public_ip_address_name=self._naming.name("head-ip"),
            sku=network.PublicIPAddressSkuArgs(name="Standard"),
            zones=parts.zones(self._prerequisites.settings),
            public_ip_allocation_method="Static",
            opts=self._naming.options(self),
        )

    def _network_interface(
        self, net: Network, address: network.PublicIPAddress | None
    ) -> network.NetworkInterface:
        public = network.PublicIPAddressArgs(id=address.id) if address else None
        nsg = None if net.head_nsg is None else network.NetworkSecurityGroupArgs(id=net.head_nsg)
        return network.NetworkInterface(
            self._naming.name("head-nic"),
            **self._naming.in_group,
            network_interface_name=self._naming.name("head-nic"),
            network_security_group=nsg,
            enable_accelerated_networking=self._prerequisites.settings.head.accelerated_networking,
            ip_configurations=[
                network.NetworkInterfaceIPConfigurationArgs(
                    name="head",
                    primary=True,
                    subnet=network.SubnetArgs(id=net.head_subnet),
                    private_ip_allocation_method="Dynamic",
                    public_ip_address=public,
                )
            ],
            opts=self._naming.options(self),
        )

    def _virtual_machine(self, data: pulumi.Output[str]) -> compute.VirtualMachine:
        settings, identities = self._prerequisites.settings, self._prerequisites.identities
        return compute.VirtualMachine(
            self._naming.name("head"),
            **self._naming.in_group,
            # After a failed creation, Azure reserves the network interface for the VM's name.
            vm_name=self._naming.name("head"),
            identity=compute.VirtualMachineIdentityArgs(
                type=compute.ResourceIdentityType.USER_ASSIGNED,
                user_assigned_identities=[identities.head.id, identities.mlflow.id],
            ),
            zones=parts.zones(settings),
            hardware_profile=compute.HardwareProfileArgs(vm_size=settings.head_size),
            storage_profile=compute.StorageProfileArgs(
                disk_controller_type=parts.disk_controller(settings.head),
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
                custom_data=data,
                linux_configuration=parts.linux(settings),
            ),
            network_profile=compute.NetworkProfileArgs(
                network_interfaces=[
                    compute.NetworkInterfaceReferenceArgs(
                        # The network interface is a resource of its own and outlives the VM.
                        id=self.nic.id,
                        primary=True,
                        delete_option="Detach",
                    )
                ]
            ),
            security_profile=parts.security(settings),
            diagnostics_profile=parts.boot_log(),
            # Unlike customData, Azure changes it in place.
            user_data=watchdog_limits(settings, self._naming.name("workers")),
            scheduled_events_profile=parts.notice(settings.head_spot),
            **parts.eviction(settings.head_spot, "Deallocate"),
            opts=self._naming.options(
                self,
                depends_on=self._prerequisites.grants,
                replace_on_changes=REPLACED_BY,
                # Azure gives them to a new VM only; the head's software brings the keys of today.
                ignore_changes=["osProfile.linuxConfiguration.ssh"],
                # A network interface is attached to one VM at a time.
                delete_before_replace=True,
            ),
        )


def watchdog_limits(settings: StackSettings, workers: str) -> str | None:
    """Returns the limits that hold from the head's first minute, whatever becomes of its software.

    boot/files/head/usr/local/lib/volley/watchdog.py reads them. None with scaling: cpu, where the
    head may change no machine.

    Args:
        workers: The scale set's name.
    """
    if not settings.has_autoscaler:
        return None
    price = hourly(settings)
    limits = {
        "workers": workers,
        "silent_hours": SILENT_HOURS if settings.sleep_after_minutes else 0,
        "max_hours": settings.max_hours,
        "budget": settings.budget,
        # Of the head alone: without its software there are no workers.
        "per_hour": price.head + price.always,
    }
    return base64.b64encode(json.dumps(limits).encode()).decode()


def _with_version(image: str, profile: Any) -> str:
    """Returns an image with the version that Azure has chosen for `latest`."""
    reference = profile["image_reference"] if isinstance(profile, dict) else profile.image_reference
    version = reference["exact_version"] if isinstance(reference, dict) else reference.exact_version
    return f"{image} ({version})" if version and not image.endswith(f":{version}") else image


def _private_ip(configurations: object) -> str:
    assert isinstance(configurations, list)
    (first, *_) = configurations
    return str(first["private_ip_address"] if isinstance(first, dict) else first.private_ip_address)
