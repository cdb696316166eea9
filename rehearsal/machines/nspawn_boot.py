"""How a machine boots: systemd-nspawn's command line, which stands for the hypervisor."""

from __future__ import annotations

from pathlib import Path

from rehearsal.machines.disk import MachineSpec
from rehearsal.paths import ENVIRONMENT, PREFIX

REBOOT = 133
"""systemd-nspawn's exit code when the machine reboots."""
SHARED_MEMORY = "2g"
BOOT_UNTIL_OFF = f'while :; do "$@"; [ $? = {REBOOT} ] || exit; done'
"""Shell code that boots a machine again after each reboot from inside."""


def boot_command(spec: MachineSpec, root: Path) -> list[str]:
    """Returns the command that boots a machine from its disk at `root`."""
    return [
        "systemd-nspawn",
        "--quiet",
        f"--directory={root}",
        f"--machine={PREFIX}-{spec.name}",
        f"--hostname={spec.name}",
        "--boot",
        # The host may have no system bus with a container manager.
        "--register=no",
        "--keep-unit",
        f"--network-bridge={spec.bridge}",
        "--resolv-conf=off",
        "--timezone=off",
        "--link-journal=no",
        "--console=read-only",
        f"--tmpfs=/dev/shm:size={SHARED_MEMORY},mode=1777",
        *(f"--bind-ro={part}:/opt/volley/{part.name}" for part in _environment(spec)),
    ]


def _environment(spec: MachineSpec) -> list[Path]:
    """Returns the parts of the image's Python environment; the machine owns their parent folder."""
    parts = sorted(ENVIRONMENT.iterdir()) if spec.has_environment else []
    return [path for path in parts if path.is_dir()]
