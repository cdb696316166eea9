"""What a VM and a scale set's instances have in common, so that they cannot drift apart."""

from __future__ import annotations

import pulumi
from pulumi_azure_native import compute

from infra.config.settings import StackSettings
from infra.config.vm_sizes import Machine

EPHEMERAL_MARGIN_GIB = 1
"""Azure keeps this much of a local disk for itself."""
NOTICE = "PT5M"


def linux(settings: StackSettings) -> compute.LinuxConfigurationArgs:
    """No password, one key."""
    user = settings.admin_username
    return compute.LinuxConfigurationArgs(
        disable_password_authentication=True,
        provision_vm_agent=True,
        ssh=compute.SshConfigurationArgs(
            public_keys=[
                compute.SshPublicKeyArgs(
                    key_data=settings.ssh_public_key.strip(),
                    path=f"/home/{user}/.ssh/authorized_keys",
                )
            ]
        ),
    )


def image(settings: StackSettings) -> compute.ImageReferenceArgs:
    """publisher:offer:sku:version, or the resource id of an image of one's own."""
    if settings.image.startswith("/"):
        return compute.ImageReferenceArgs(id=settings.image)
    publisher, offer, sku, version = settings.image.split(":")
    return compute.ImageReferenceArgs(publisher=publisher, offer=offer, sku=sku, version=version)


def is_ephemeral(machine: Machine, settings: StackSettings) -> bool:
    """Whether the OS disk fits on the machine's local disk: free, and faster to make."""
    return machine.temp_disk_gib >= settings.os_disk_gib + EPHEMERAL_MARGIN_GIB


def security(settings: StackSettings) -> compute.SecurityProfileArgs:
    """Disks are encrypted where they are, caches and local disks included."""
    if not settings.trusted_launch:
        return compute.SecurityProfileArgs(encryption_at_host=True)
    return compute.SecurityProfileArgs(
        encryption_at_host=True,
        security_type="TrustedLaunch",
        # NVIDIA's driver on this image is not signed for Secure Boot.
        uefi_settings=compute.UefiSettingsArgs(secure_boot_enabled=False, v_tpm_enabled=True),
    )


def eviction(spot: bool, policy: str) -> dict[str, pulumi.Input[object]]:
    """Returns the arguments that make a machine low-priority; price up to pay-as-you-go."""
    if not spot:
        return {"priority": "Regular"}
    return {
        "priority": "Spot",
        "eviction_policy": policy,
        "billing_profile": compute.BillingProfileArgs(max_price=-1),
    }


def notice(spot: bool) -> compute.ScheduledEventsProfileArgs | None:
    """A notice before deletion; Azure refuses it on spot machines, which get one unasked."""
    if spot:
        return None
    return compute.ScheduledEventsProfileArgs(
        terminate_notification_profile=compute.TerminateNotificationProfileArgs(
            enable=True, not_before_timeout=NOTICE
        )
    )


def boot_log() -> compute.DiagnosticsProfileArgs:
    """The serial console's log, in storage that Azure manages."""
    return compute.DiagnosticsProfileArgs(
        boot_diagnostics=compute.BootDiagnosticsArgs(enabled=True)
    )
