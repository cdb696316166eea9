"""The machines' Python environment, made once for each lock with the machines' own script."""

from __future__ import annotations

import hashlib

from infra.boot.cloud_config import FILES, PYTHON_VERSION, REQUIREMENTS
from rehearsal.paths import BASE, ENVIRONMENT
from rehearsal.set_up.atomic import Report, in_namespaces, made_aside, text_of, timed
from rehearsal.set_up.package_sources import package_sources

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


def has_python_environment() -> bool:
    made_of = text_of(ENVIRONMENT / "venv/lock.sha256")
    return made_of == lock_digest(LOCK.read_bytes()) and (ENVIRONMENT / "venv/bin/uv").exists()


def make_python_environment(report: Report) -> None:
    """Makes the environment if it is missing, on a disk like a machine's."""
    if has_python_environment():
        return
    with timed("Python environment", report), made_aside(ENVIRONMENT) as opt:
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
