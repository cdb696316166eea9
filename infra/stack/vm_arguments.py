"""Arguments that are the same for the head's VM and the scale set's instances."""

import pulumi
from pulumi_azure_native import compute

from infra.config.stack_settings import StackSettings
from infra.config.vm_sizes import Machine

NOTICE = "PT5M"


def linux(settings: StackSettings) -> compute.LinuxConfigurationArgs:
    """Returns the Linux configuration: no password, keys only.

    Azure gives them to a new machine only; infra/boot/install_head.sh sets those of today.

    checkov also wants no extension operations (CKV_AZURE_50), which run commands need, and a scale
    set that is patched while it runs (CKV_AZURE_95), which would end env runners: a new machine has
    the newest image.
    """
    user = settings.admin_username
    return compute.LinuxConfigurationArgs(
        disable_password_authentication=True,
        provision_vm_agent=True,
        ssh=compute.SshConfigurationArgs(
            public_keys=[
                compute.SshPublicKeyArgs(key_data=key, path=f"/home/{user}/.ssh/authorized_keys")
                for key in settings.ssh_public_keys
            ]
        ),
    )


def image(settings: StackSettings) -> compute.ImageReferenceArgs:
    """Returns the image: publisher:offer:sku:version, or a custom image's resource id."""
    if settings.image.startswith("/"):
        return compute.ImageReferenceArgs(id=settings.image)
    publisher, offer, sku, version = settings.image.split(":")
    return compute.ImageReferenceArgs(publisher=publisher, offer=offer, sku=sku, version=version)


def disk_controller(machine: Machine) -> str | None:
    """Returns the disk controller to ask for; None leaves it to Azure, which takes the size's.

    https://learn.microsoft.com/azure/virtual-machines/nvme-overview
    """
    return "NVMe" if machine.nvme_only else None


def zones(settings: StackSettings) -> list[str] | None:
    return [settings.zone] if settings.zone else None


def security(settings: StackSettings) -> compute.SecurityProfileArgs:
    """Returns encryption at host: disks, their caches and local disks are encrypted.

    No security type: with this version of Azure's API that is a machine without Secure Boot. Newer
    ones need "Standard" for it, see tests/infra/stack/test_api_versions.py.
    """
    if not settings.trusted_launch:
        return compute.SecurityProfileArgs(encryption_at_host=True)
    return compute.SecurityProfileArgs(
        encryption_at_host=True,
        security_type="TrustedLaunch",
        # NVIDIA's driver on this image is not signed for Secure Boot.
        uefi_settings=compute.UefiSettingsArgs(secure_boot_enabled=False, v_tpm_enabled=True),
    )


def eviction(spot: bool, policy: str) -> dict[str, pulumi.Input[object]]:
    """Returns the arguments of a Spot machine, at a price of up to pay-as-you-go."""
    if not spot:
        return {"priority": "Regular"}
    return {
        "priority": "Spot",
        "eviction_policy": policy,
        "billing_profile": compute.BillingProfileArgs(max_price=-1),
    }


def notice(spot: bool) -> compute.ScheduledEventsProfileArgs | None:
    """Returns a notice before deletion; Azure refuses it for Spot machines, which always get it."""
    if spot:
        return None
    return compute.ScheduledEventsProfileArgs(
        terminate_notification_profile=compute.TerminateNotificationProfileArgs(
            enable=True, not_before_timeout=NOTICE
        )
    )


def boot_log() -> compute.DiagnosticsProfileArgs:
    """Returns boot diagnostics in storage that Azure manages."""
    return compute.DiagnosticsProfileArgs(
        boot_diagnostics=compute.BootDiagnosticsArgs(enabled=True)
    )
