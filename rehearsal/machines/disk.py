"""A machine's disk: an overlay over the base image, with what Azure would put there."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from pathlib import Path

from rehearsal.host_paths import BASE, PREFIX, name_servers
from rehearsal.host_shell import run

DISK = "disk"
"""The folder of a machine's own file system, below its overlay."""
LOOP_DEVICES = Path("/dev/loop-control")
DEAD_SOURCE = "deb [trusted=yes] https://packages.third-party.invalid/debian stable main\n"


@dataclass(frozen=True)
class MachineSpec:
    name: str
    """Its host name."""
    resource_id: str
    bridge: str
    address: str
    prefix_length: int
    gateway: str
    user_data: str
    admin_username: str
    ssh_public_keys: list[str]
    has_environment: bool
    """Whether its image contains the Python environment of the lock."""
    disk_gib: int


def make_disk(folder: Path, spec: MachineSpec, hosts: str, certificate: Path) -> None:
    """Mounts a machine's disk at `folder`/root, ready for its first boot.

    `hosts` are lines of /etc/hosts, in place of Azure's name server; it trusts `certificate`.
    """
    root, disk = folder / "root", folder / DISK
    root.mkdir(parents=True)
    disk.mkdir()
    _mount_file_system(folder / "disk.img", spec.disk_gib, disk)
    for part in ("upper", "work"):
        (disk / part).mkdir()
    layers = f"lowerdir={BASE},upperdir={disk}/upper,workdir={disk}/work"
    run("mount", "-t", "overlay", f"{PREFIX}-{spec.name}", "-o", layers, root)
    _write_seed(root, spec)
    (root / "etc/hosts").write_text(f"127.0.0.1 localhost {spec.name}\n{hosts}")
    (root / "etc/resolv.conf").write_bytes(name_servers().read_bytes())
    # Images may have package sources that do not answer, and that nothing needs.
    (root / "etc/apt/sources.list.d/third-party.list").write_text(DEAD_SOURCE)
    # No machine survives a power cut of this host, so dpkg need not sync.
    (root / "etc/dpkg/dpkg.cfg.d/unsafe-io").write_text("force-unsafe-io\n")
    _trust(root, certificate)


def _mount_file_system(image: Path, gib: int, disk: Path) -> None:
    """Gives a disk the declared size, by a sparse file; this host may have no loop devices."""
    if not LOOP_DEVICES.exists():
        return
    run("truncate", f"--size={gib}G", image)
    run("mkfs.ext4", "-q", "-m", "0", "-E", "lazy_itable_init=1,lazy_journal_init=1", image)
    run("mount", "-o", "loop,discard,noatime", image, disk)


def _write_seed(root: Path, spec: MachineSpec) -> None:
    """Writes cloud-init's seed: customData, key, host name and address."""
    seed = root / "var/lib/cloud/seed/nocloud"
    seed.mkdir(parents=True)
    metadata = {
        # cloud-init runs once for each instance id: a replaced machine needs a new one.
        "instance-id": str(uuid.uuid4()),
        "local-hostname": spec.name,
        "public-keys": spec.ssh_public_keys,
    }
    subnet = {
        "type": "static",
        "address": f"{spec.address}/{spec.prefix_length}",
        "gateway": spec.gateway,
    }
    network = {
        "version": 1,
        "config": [{"type": "physical", "name": "host0", "subnets": [subnet]}],
    }
    user = {
        "name": spec.admin_username,
        "lock_passwd": True,
        "shell": "/bin/bash",
        "sudo": ["ALL=(ALL) NOPASSWD:ALL"],
    }
    (seed / "meta-data").write_text(json.dumps(metadata))
    (seed / "user-data").write_text(spec.user_data)
    (seed / "network-config").write_text(json.dumps(network))
    settings = root / "etc/cloud/cloud.cfg.d/98-platform.cfg"
    settings.write_text(json.dumps({"system_info": {"default_user": user}}))


def _trust(root: Path, certificate: Path) -> None:
    bundle = root / "etc/ssl/certs/ca-certificates.crt"
    with open(bundle, "a") as file:
        file.write(certificate.read_text())
    folder = root / "etc/systemd/system.conf.d"
    folder.mkdir(parents=True, exist_ok=True)
    inside = f"/{bundle.relative_to(root)}"
    # Python packages bring their own bundles.
    (folder / "10-ca.conf").write_text(
        f"[Manager]\nDefaultEnvironment=REQUESTS_CA_BUNDLE={inside} SSL_CERT_FILE={inside}\n"
    )
