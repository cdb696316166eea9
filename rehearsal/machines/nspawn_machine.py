"""A declared VM as a container: real systemd, real cloud-init, its real customData.

Its folder holds its whole state, so that any process can use it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Literal, cast

from rehearsal.host_paths import ENVIRONMENT, MACHINES, PREFIX
from rehearsal.host_shell import CLEAN_ENVIRONMENT, CommandError, run
from rehearsal.machines.cgroup import Cgroup
from rehearsal.machines.disk import DISK, MachineSpec, make_disk

SHUTDOWN_S = 30.0
"""How long a machine may take to shut down before it loses its power."""
POWER_OFF = signal.SIGRTMIN + 4
"""systemd's signal for the power button: https://man7.org/linux/man-pages/man1/systemd.1.html"""
REBOOT = 133
"""systemd-nspawn's exit code when the machine reboots."""
SHARED_MEMORY = "2g"
BOOT_UNTIL_OFF = f'while :; do "$@"; [ $? = {REBOOT} ] || exit; done'
"""Shell code that boots a machine again after each reboot from inside."""

Power = Literal["on", "shutting down", "off"]


class Machine:
    """A machine that exists."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.folder = MACHINES / name
        self.root = self.folder / "root"
        self.interface = f"vb-{PREFIX}-{name}"[:15]
        """The host's end of its cable."""
        self.cgroup = Cgroup(name)
        self._power_file = self.folder / "power"

    @property
    def spec(self) -> MachineSpec:
        return MachineSpec(**json.loads((self.folder / "spec.json").read_text()))

    # Its disk

    @classmethod
    def create(cls, spec: MachineSpec, hosts: str, certificate: Path) -> Machine:
        """Makes a machine that has never booted; for the arguments see make_disk."""
        machine = cls(spec.name)
        make_disk(machine.folder, spec, hosts, certificate)
        (machine.folder / "spec.json").write_text(json.dumps(asdict(spec)))
        return machine

    def delete(self) -> None:
        self.kill()
        for mount in (self.root, self.folder / DISK):
            run("umount", "-R", mount, check=False)
            if os.path.ismount(mount):
                run("umount", "-l", mount, check=False)
        self.cgroup.remove()
        shutil.rmtree(self.folder, ignore_errors=True)

    # Its life

    def start(self) -> None:
        """Boots it; a reboot from inside boots it again."""
        # An orphan of a killed systemd-nspawn would hold the disk.
        self.kill()
        self._power_file.unlink(missing_ok=True)
        run("ip", "link", "del", self.interface, check=False)
        self.cgroup.make()
        # It outlives this process, so it must not be its child.
        script = self.cgroup.enter_command() + BOOT_UNTIL_OFF
        detached = ["setsid", "--fork", "bash", "-c", script, "nspawn"]
        with open(self.folder / "console.log", "ab") as log:
            subprocess.run(
                [*detached, *boot_command(self.spec, self.root)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=CLEAN_ENVIRONMENT,
                check=True,
            )

    def kill(self) -> None:
        """Cuts the power: all of its processes are killed without notice."""
        self.cgroup.kill()

    @property
    def power(self) -> Power:
        """Azure's view of its power; `kill` does not change it."""
        return cast("Power", self._power_file.read_text()) if self._power_file.exists() else "on"

    def shut_down(self) -> None:
        """Presses its power button and returns; call `switch_off` when it has shut down."""
        self._power_file.write_text("shutting down")
        leader = self.leader
        if leader is not None:
            with suppress(ProcessLookupError):
                os.kill(leader, POWER_OFF)

    @property
    def has_shut_down(self) -> bool:
        """Whether it has shut down since `shut_down`, or has exceeded its time."""
        if self.power != "shutting down":
            return False
        overdue = time.time() > self._power_file.stat().st_mtime + SHUTDOWN_S
        return overdue or not self.cgroup.processes()

    def switch_off(self) -> None:
        """Cuts the power; the disk stays."""
        self.kill()
        self._power_file.write_text("off")

    @property
    def leader(self) -> int | None:
        """The host's process id of its systemd; None while it does not run."""
        for pid in sorted(self.cgroup.processes()):
            try:
                status = Path(f"/proc/{pid}/status").read_text()
            except OSError:
                continue
            (inside,) = [line for line in status.splitlines() if line.startswith("NSpid:")]
            if inside.split()[2:] == ["1"]:
                return pid
        return None

    # Inside

    def inside(self, *command: str | Path) -> list[str]:
        """Returns the host's command line for a command inside this machine, as root."""
        leader = self.leader
        if leader is None:
            raise CommandError(f"{self.name} does not run")
        enter = ["nsenter", "-t", str(leader), "-m", "-u", "-i", "-n", "-p", "-C", "--root", "--wd"]
        clean = [f"{name}={value}" for name, value in CLEAN_ENVIRONMENT.items()]
        return [*enter, "--", "env", "-i", *clean, *map(str, command)]

    def run(
        self,
        *command: str | Path,
        text: str | None = None,
        timeout_s: float = 60,
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command inside, as root; raises CommandError as host_shell.run does."""
        return run(*self.inside(*command), text=text, timeout_s=timeout_s, check=check)

    def cloud_init_done(self) -> bool:
        """Whether cloud-init has ended: result.json is the last file that it writes."""
        leader = self.leader
        return (
            leader is not None and Path(f"/proc/{leader}/root/run/cloud-init/result.json").exists()
        )


def all_machines() -> list[Machine]:
    if not MACHINES.is_dir():
        return []
    return [
        Machine(folder.name)
        for folder in sorted(MACHINES.iterdir())
        if (folder / "spec.json").exists()
    ]


def boot_command(spec: MachineSpec, root: Path) -> list[str]:
    """Returns the command that boots a machine from its disk at `root`."""
    environment = sorted(ENVIRONMENT.iterdir()) if spec.has_environment else []
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
        # The machine owns the parent folder of the image's Python environment.
        *(f"--bind-ro={part}:/opt/volley/{part.name}" for part in environment if part.is_dir()),
    ]
