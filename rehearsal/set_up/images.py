"""The base image of all machines, and the Python environment of a custom image.

The base image is Debian with cloud-init and this host's package sources. The environment is made
once for each lock, with the machines' own script.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from infra.boot.cloud_config import FILES, PYTHON_VERSION, REQUIREMENTS
from rehearsal.host_paths import BASE, ENVIRONMENT
from rehearsal.host_shell import CommandError
from rehearsal.set_up.atomic import in_namespaces, made_aside, text_of, timed
from rehearsal.set_up.package_sources import RELEASE, PackageSources, fingerprint, package_sources
from rehearsal.set_up.tools import DEBIAN_KEYRING

PACKAGES = (
    "systemd,systemd-sysv,dbus,udev,libpam-systemd,sudo,openssh-server,"
    "iproute2,netbase,ifupdown,nftables,curl,ca-certificates,procps,"
    "python3,python3-pip,xz-utils,zstd,xvfb,xauth"
)
"""Azure's images have them too, except the last two, which a custom image may have.
debootstrap cannot resolve cloud-init, the tools for containers, faketime (for the soak) and
needrestart, which restarts services after an installation, as in Azure's images."""
NOT_ON_AZURE = ("tmp.mount",)
"""Units of Debian that Azure's images lack: there /tmp is on the disk."""
CLOUD_CONFIG = "datasource_list: [NoCloud, None]\nlocale: false\n"
DEBOOTSTRAP = """rm -rf "$1"
exec debootstrap --variant=minbase --keyring="$4" --include="$5" "$2" "$1" ${3:+"$3"}"""
INSTALL_THE_REST = """mount -t proc proc "$1/proc"
chroot "$1" apt-get update -qq
chroot "$1" apt-get install -qq --yes --no-install-recommends \
  cloud-init skopeo umoci faketime needrestart
# Ubuntu's needrestart does so where nobody can be asked; Debian's only lists.
echo "\\$nrconf{restart} = 'a';" > "$1/etc/needrestart/conf.d/restart.conf"
chroot "$1" apt-get clean"""
LOCK = REQUIREMENTS / "machine.txt"
SCRIPT = FILES / "common/usr/local/lib/volley/make-python-environment"
MAKE_ENVIRONMENT = """base=$1 opt=$2 script=$3 lock=$4 uv=$5
# The disk of a machine at its first boot, with /opt/volley on the folder that is being made.
mount -t tmpfs tmpfs /mnt && cd /mnt
install -D --target-directory=upper/usr/local/lib/volley "$script"
install -D --mode=0644 "$lock" upper/etc/volley/requirements.txt
install -D --mode=0644 "$uv" upper/etc/volley/uv.txt
touch upper/etc/volley/{pip,apt}-packages.txt
cp /etc/resolv.conf upper/etc/
mkdir -p upper/opt/volley work root "$opt/tmp"
mount -t overlay overlay -o "lowerdir=$base,upperdir=upper,workdir=work" root
mount -t proc proc root/proc
mount --bind "$opt" root/opt/volley
# uv links what it has unpacked, where that is on the same disk.
TMPDIR=/opt/volley/tmp chroot root "/usr/local/lib/volley/${script##*/}"
rm -r "$opt/tmp" "$opt"/uv*
"""
"""Leaves in the folder exactly what machines must find in /opt/volley."""


def has_base_image() -> bool:
    return text_of(BASE / ".recipe") == recipe_digest(fingerprint())


def make_base_image() -> None:
    """Makes the image if it is missing or out of date, unless machines have it mounted."""
    if has_base_image():
        return
    if mounted := overlays_on(BASE, Path("/proc/self/mountinfo").read_text()):
        raise CommandError(
            f"the base image would change beneath machines that have it mounted: "
            f"{', '.join(mounted)}; cure: make rehearse-clean"
        )
    with timed("base image"), made_aside(BASE) as root:
        sources = package_sources()
        in_namespaces(
            DEBOOTSTRAP,
            root,
            RELEASE,
            sources.mirrors.get(RELEASE, ""),
            DEBIAN_KEYRING,
            PACKAGES,
            variables=sources.proxy | sources.variables,
            timeout_s=900,
            retry=True,
        )
        _configure(root, sources)
        (root / ".recipe").write_text(recipe_digest(fingerprint()))


def recipe_digest(host: str) -> str:
    """Returns a digest that identifies a base image; `host` is the host's fingerprint."""
    recipe = (
        RELEASE,
        tuple(PACKAGES.split(",")),
        DEBOOTSTRAP,
        CLOUD_CONFIG,
        NOT_ON_AZURE,
        INSTALL_THE_REST,
        host,
    )
    return hashlib.sha256(repr(recipe).encode()).hexdigest()


def overlays_on(base: Path, mountinfo: str) -> list[str]:
    """Reads in /proc/self/mountinfo where overlays over `base` are mounted."""
    mounts = []
    for line in mountinfo.splitlines():
        mount, _, file_system = line.partition(" - ")
        kind, _, options = file_system.split(" ", 2)
        lower = [value for value in options.split(",") if value.startswith("lowerdir")]
        layers = ":".join(value.partition("=")[2] for value in lower).split(":")
        if kind == "overlay" and str(base) in layers:
            mounts.append(mount.split()[4])
    return mounts


def _configure(root: Path, sources: PackageSources) -> None:
    sources.carry_into(root)
    settings = root / "etc/cloud/cloud.cfg.d/99-rehearsal.cfg"
    settings.parent.mkdir(parents=True)
    settings.write_text(CLOUD_CONFIG)
    in_namespaces(INSTALL_THE_REST, root, variables=sources.variables, timeout_s=600, retry=True)
    for unit in NOT_ON_AZURE:
        (root / "etc/systemd/system" / unit).symlink_to("/dev/null")
    # Each machine gets an identity of its own.
    (root / "etc/machine-id").write_text("")
    (root / "etc/hostname").unlink(missing_ok=True)
    for key in (root / "etc/ssh").glob("ssh_host_*"):
        key.unlink()


def has_python_environment() -> bool:
    made_of = text_of(ENVIRONMENT / "venv/lock.sha256")
    return made_of == lock_digest(LOCK.read_bytes()) and (ENVIRONMENT / "venv/bin/uv").exists()


def make_python_environment() -> None:
    """Makes the environment if it is missing, on a disk like a machine's."""
    if has_python_environment():
        return
    with timed("Python environment"), made_aside(ENVIRONMENT) as opt:
        in_namespaces(
            MAKE_ENVIRONMENT,
            BASE,
            opt,
            SCRIPT,
            LOCK,
            REQUIREMENTS / "uv.txt",
            variables=package_sources().variables | {"PYTHON_VERSION": PYTHON_VERSION},
            timeout_s=1800,
            retry=True,
        )


def lock_digest(lock: bytes) -> str:
    """Returns the script's lock.sha256 for a user who adds no packages."""
    return hashlib.sha256(lock).hexdigest()
