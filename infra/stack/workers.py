"""The workers: a scale set whose machines join the head's Ray cluster."""

import pulumi
from pulumi_azure_native import compute

from infra.config.stack_settings import StackSettings
from infra.error_codes import WORKERS_HAVE_CHANGED
from infra.stack import vm_arguments as parts
from infra.stack.head import Head
from infra.stack.machine_environment import Prerequisites, custom_data, worker_environment
from infra.stack.naming import Naming
from infra.stack.network import Network

MIX = "Mix"
"""The SKU name of a scale set with several sizes."""
REPLACED_BY = [
    # A scale set's model can change these, but running instances would keep the old values.
    "sku.name",
    "skuProfile",
    "virtualMachineProfile.osProfile",
    "virtualMachineProfile.storageProfile",
    "virtualMachineProfile.securityProfile",
    "virtualMachineProfile.priority",
    "virtualMachineProfile.evictionPolicy",
]


def refuse_other_capacity(update: pulumi.ResourceHookArgs) -> None:
    """Raises before an update of a scale set that would change its number of workers.

    An update sends the whole scale set, with the capacity in the state: Azure would delete workers
    created since then, or create some for a sleeping cluster.

    Raises:
        RuntimeError: Azure has another capacity than the update would send.
    """
    inputs = update.new_inputs or {}
    sent = int(inputs["sku"]["capacity"])
    scale_set = compute.get_virtual_machine_scale_set(
        resource_group_name=inputs["resourceGroupName"], vm_scale_set_name=inputs["vmScaleSetName"]
    )
    running = int((scale_set.sku and scale_set.sku.capacity) or 0)
    if running != sent:
        raise RuntimeError(
            f"{WORKERS_HAVE_CHANGED}: the cluster has {running} workers, the stack's state says "
            f"{sent}; nothing was changed. Next: volley up (or pulumi refresh, then pulumi up)"
        )


class Workers(pulumi.ComponentResource):
    """A scale set in flexible orchestration, without public addresses."""

    def __init__(self, prerequisites: Prerequisites, head: Head) -> None:
        naming, settings = prerequisites.naming, prerequisites.settings
        workers = prerequisites.identities.workers
        super().__init__("volley:infra:Workers", naming.name("workers"), opts=naming.in_cluster)
        data = custom_data(worker_environment, prerequisites, workers, head.private_ip)
        self.scale_set = compute.VirtualMachineScaleSet(
            naming.name("workers"),
            **naming.in_group,
            vm_scale_set_name=naming.name("workers"),
            identity=compute.VirtualMachineScaleSetIdentityArgs(
                type=compute.ResourceIdentityType.USER_ASSIGNED,
                user_assigned_identities=[workers.id],
            ),
            sku=compute.SkuArgs(
                name=MIX if settings.other_worker_sizes else settings.worker_size,
                tier=None if settings.other_worker_sizes else "Standard",
                # The head creates workers later, so that a shortage cannot fail `up`.
                capacity=0,
            ),
            sku_profile=_sizes(settings),
            zones=settings.worker_zones or parts.zones(settings),
            orchestration_mode="Flexible",
            platform_fault_domain_count=1,
            single_placement_group=False,
            virtual_machine_profile=_profile(settings, prerequisites.network, data),
            opts=naming.options(
                self,
                depends_on=prerequisites.grants,
                replace_on_changes=REPLACED_BY,
                delete_before_replace=True,
                ignore_changes=[
                    # Every update sends the capacity that is in the state.
                    "sku.capacity",
                    # Azure wants a key, but no rule lets anybody log in on a worker.
                    "virtualMachineProfile.osProfile.linuxConfiguration.ssh",
                ],
                hooks=pulumi.ResourceHookBinding(before_update=[_same_capacity(naming)]),
            ),
        )
        self.register_outputs({"scaleSet": self.scale_set.id})


def _same_capacity(naming: Naming) -> pulumi.ResourceHook:
    in_preview = pulumi.ResourceHookOptions(on_dry_run=True)
    return pulumi.ResourceHook(naming.name("same-capacity"), refuse_other_capacity, in_preview)


def _sizes(settings: StackSettings) -> compute.SkuProfileArgs | None:
    """Returns the sizes in order of preference, or None if there is only one.

    https://learn.microsoft.com/azure/virtual-machine-scale-sets/instance-mix-overview
    """
    if not settings.other_worker_sizes:
        return None
    return compute.SkuProfileArgs(
        allocation_strategy="Prioritized",
        vm_sizes=[
            compute.SkuProfileVMSizeArgs(name=size, rank=rank)
            for rank, size in enumerate(settings.worker_sizes)
        ],
    )


def _profile(
    settings: StackSettings, net: Network, data: pulumi.Output[str]
) -> compute.VirtualMachineScaleSetVMProfileArgs:
    return compute.VirtualMachineScaleSetVMProfileArgs(
        os_profile=compute.VirtualMachineScaleSetOSProfileArgs(
            computer_name_prefix="worker",
            admin_username=settings.admin_username,
            custom_data=data,
            linux_configuration=parts.linux(settings),
        ),
        storage_profile=compute.VirtualMachineScaleSetStorageProfileArgs(
            image_reference=parts.image(settings),
            os_disk=_os_disk(settings),
            disk_controller_type=parts.disk_controller(settings.worker),
        ),
        network_profile=_network(settings, net),
        security_profile=parts.security(settings),
        diagnostics_profile=parts.boot_log(),
        scheduled_events_profile=parts.notice(settings.worker_spot),
        # A worker keeps no data.
        **parts.eviction(settings.worker_spot, "Delete"),
    )


def _os_disk(settings: StackSettings) -> compute.VirtualMachineScaleSetOSDiskArgs:
    if settings.has_ephemeral_worker_disks:
        return compute.VirtualMachineScaleSetOSDiskArgs(
            create_option="FromImage",
            caching="ReadOnly",
            disk_size_gb=settings.os_disk_gib,
            diff_disk_settings=compute.DiffDiskSettingsArgs(
                option="Local", placement=settings.worker.placement
            ),
        )
    return compute.VirtualMachineScaleSetOSDiskArgs(
        create_option="FromImage",
        delete_option="Delete",
        disk_size_gb=settings.os_disk_gib,
        managed_disk=compute.VirtualMachineScaleSetManagedDiskParametersArgs(
            storage_account_type="StandardSSD_LRS"
        ),
    )


def _network(
    settings: StackSettings, net: Network
) -> compute.VirtualMachineScaleSetNetworkProfileArgs:
    nsg = None if net.worker_nsg is None else compute.SubResourceArgs(id=net.worker_nsg)
    return compute.VirtualMachineScaleSetNetworkProfileArgs(
        network_api_version="2020-11-01",
        network_interface_configurations=[
            compute.VirtualMachineScaleSetNetworkConfigurationArgs(
                name="worker",
                primary=True,
                delete_option="Delete",
                enable_accelerated_networking=settings.worker.accelerated_networking,
                network_security_group=nsg,
                ip_configurations=[
                    compute.VirtualMachineScaleSetIPConfigurationArgs(
                        name="worker",
                        primary=True,
                        subnet=compute.ApiEntityReferenceArgs(id=net.worker_subnet),
                    )
                ],
            )
        ],
    )
