"""Runs a driver or an env runner in a container image; Ray's py_executable starts it.

    python -m payload.environments.container IMAGE --folders FOLDERS --own VARIABLES -- COMMAND...

The image gives the files. The rest stays the machine's: Ray's processes find each other by
process id, by sockets below /tmp, in shared memory and through the network. The machine's Python
packages, with Ray and torch, come before the image's own, so an image needs none of them.

podman, which Ray's `image_uri` uses, does not fit: to share process ids it wants a cgroup of its
own, which a service's user cannot make, and its options exclude the rest of a runtime_env. Here two
namespaces suffice, of which util-linux makes one for the mounts, and one in which the user is again
what it was, without a privilege. The command replaces this process, so signals, limits of memory
and the end of a service reach it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from shlex import quote

from payload.environments.image import pull
from payload.errors import TemporaryError, UserError

MODULE = "payload.environments.container"
STAGE = """\
set -e
root=/mnt/root
bind() {
  [ -e "$1" ] || return 0
  case $(realpath -m "$root$2") in
    $root/*) ;;
    *) echo "$2 is a link that leaves the image" >&2; exit 1 ;;
  esac
  if [ -d "$1" ]; then mkdir -p "$root$2"; else mkdir -p "$root${2%/*}"; touch "$root$2"; fi
  mount --rbind "$1" "$root$2"
}
mount -t tmpfs tmpfs /mnt
mkdir /mnt/changes /mnt/work $root
mount -t overlay overlay -o "userxattr,lowerdir=$1,upperdir=/mnt/changes,workdir=/mnt/work" $root
# The root of the links in an image is its own; here they would lead to the machine's files.
for own in /etc /home /tmp /dev /proc /sys /home/ray /etc/passwd; do
  [ ! -L $root$own ] || rm $root$own
done
mkdir -p $root/etc $root/home/ray
cp --dereference --remove-destination /etc/hosts /etc/resolv.conf $root/etc/
printf '\\nray:x:%s:%s::/home/ray:/bin/sh\\n' "$2" "$3" >> $root/etc/passwd
for folder in /dev /proc /sys /tmp; do bind $folder $folder; done
"""
"""What a container writes is in memory and gone when it ends, but for what is mounted from here."""
ENTER = """\
user=$2 group=$3 path=$4 folder=$5
shift 5
PATH=$path exec /usr/bin/setpriv --no-new-privs /usr/bin/unshare --user --map-user="$user" \\
  --map-group="$group" --root=$root --wd="$folder" "$@"
"""
HOSTS_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
HOSTS_OWN = re.compile(
    r"PATH|HOME|SHELL|USER|LOGNAME|PWD|OLDPWD|TMPDIR|VIRTUAL_ENV|PYTHONHOME|"
    r"XDG_.*|LD_.*|LC_.*|LANG.*|SYSTEMD_.*|INVOCATION_ID|JOURNAL_STREAM|MEMORY_PRESSURE_.*"
)
"""Variables that say how the machine is, and not what is to be run."""
DRIVER = re.compile(r"^\s*lib(?:cuda|nvidia-ml|nvidia-ptxjitcompiler)\.so\S* .* => (\S+)$", re.M)
"""Libraries of NVIDIA's driver in ldconfig's list; those of CUDA are torch's own."""
DRIVER_FOLDER = "/usr/local/nvidia/lib64"
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
CHECK = """\
import sys
print("%d.%d" % sys.version_info[:2], flush=True)
import subprocess
subprocess.run("true", shell=True, check=True)
import ray, torch, numpy
"""
"""Prints the version of Python, and fails without a shell or if the packages do not run."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("image")
    parser.add_argument("--folders", default="", help="of the machine, which it may write to")
    parser.add_argument("--own", default="", help="the experiment's environment_variables")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    folders = [Path(folder) for folder in options.folders.split(os.pathsep) if folder]
    bundle = pull(options.image, _gcs(options.command))
    environment = container_environment(bundle, os.environ, options.own.split(","))
    command = enter(bundle, folders, options.command, environment["PATH"])
    os.execve(command[0], command, {**environment, "PATH": HOSTS_PATH})


def _gcs(command: Sequence[str]) -> str | None:
    """Returns the address of Ray's GCS if the command starts a worker of Ray."""
    option = "--gcs-address="
    values = [word.removeprefix(option) for word in command if word.startswith(option)]
    return values[0] if values else None


def check(image: str) -> None:
    """Checks on this machine that Ray can run in an image.

    Raises:
        UserError: Its Python is another one, or cannot import the machine's packages.
        TemporaryError: It was not pulled, or no container starts on this machine.
    """
    command = [sys.executable, "-m", MODULE, image, "--", "python3", "-c", CHECK]
    variables = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    version = done.stdout.strip()
    why = (done.stderr.strip().splitlines() or [""])[-1]
    if "Exec format error" in why:
        raise UserError(f"image: {image}: is for another architecture than linux/amd64")
    if "failed to execute python3" in why:
        raise UserError(f"image: {image}: has no python3; it needs Python {PYTHON}")
    if not version:
        raise TemporaryError(f"image: {image}: its container does not start: {why}")
    if version != PYTHON:
        raise UserError(f"image: {image}: has Python {version}; the cluster's is {PYTHON}")
    if done.returncode != 0:
        raise UserError(f"image: {image}: the cluster's packages do not run in it: {why}")


def enter(bundle: Path, folders: Sequence[Path], command: Sequence[str], path: str) -> list[str]:
    """Returns a command line that runs a command in a container.

    Args:
        bundle: An unpacked image, see `pull`.
        folders: Folders of this machine that it may write to; those that are missing stay out.
        path: The PATH of the container.
    """
    here = Path.cwd()
    if not any(here.is_relative_to(folder) for folder in (Path("/tmp"), *folders)):
        here = Path("/")
    packages, token = sysconfig.get_path("purelib"), os.environ.get("RAY_AUTH_TOKEN_PATH")
    mounts = {**{folder: folder for folder in folders}, Path(packages): packages}
    if token:
        mounts[Path(token)] = token
    for library in _driver():
        mounts[library] = f"{DRIVER_FOLDER}/{library.name}"
    lines = "".join(f"bind {quote(str(a))} {quote(str(b))}\n" for a, b in mounts.items())
    values = (bundle / "rootfs", os.getuid(), os.getgid(), path, here)
    stage = ["sh", "-c", f"{STAGE}{lines}{ENTER}", "sh", *map(str, values)]
    return ["/usr/bin/unshare", "--user", "--map-root-user", "--mount", *stage, *command]


def container_environment(
    bundle: Path, variables: Mapping[str, str], own: Sequence[str] = ()
) -> dict[str, str]:
    """Returns the image's variables, and over them those of this process that say what to run.

    Args:
        own: Names of the experiment's environment_variables, all of which pass.
    """
    config = json.loads((bundle / "config.json").read_text())
    image = dict(line.split("=", 1) for line in config["process"].get("env", []))
    passed = {
        name: value
        for name, value in variables.items()
        if name in own or not HOSTS_OWN.fullmatch(name)
    }
    # Behind Ray's working directory and modules, before the image's packages.
    path = [variables.get("PYTHONPATH"), sysconfig.get_path("purelib"), image.get("PYTHONPATH")]
    libraries = [{**image, **passed}.get("LD_LIBRARY_PATH"), DRIVER_FOLDER]
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        **image,
        **passed,
        # Its Python may be 3.11.2 where the machine's is 3.11.9; Ray compares both as texts.
        "RAY_DEFAULT_PYTHON_VERSION_MATCH_LEVEL": "minor",
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        "LD_LIBRARY_PATH": os.pathsep.join(filter(None, libraries)),
        "HOME": "/home/ray",
        "USER": "ray",
        "LOGNAME": "ray",
    }


def _driver() -> Iterator[Path]:
    """Yields the libraries of NVIDIA's driver, which belong to the machine's kernel."""
    if not Path("/dev/nvidiactl").exists():
        return
    listed = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True)
    yield from (Path(path) for path in DRIVER.findall(listed.stdout))


if __name__ == "__main__":
    main()
