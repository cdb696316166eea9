"""Container images: named by digest, pulled once a machine, checked before anything starts.

skopeo copies an image from its registry, and umoci unpacks it; neither needs root.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from payload.environments.inputs import file_lock
from payload.errors import TemporaryError, UserError

IMAGES = ".images"
"""Below the home of the user; a folder for each image."""
PROGRAMS = ("skopeo", "umoci")
FINAL = re.compile(
    r"manifest unknown|name unknown|not known to registry|resource is denied|unauthorized"
    r"|authentication required|no image found|invalid reference|unsupported",
    re.I,
)
"""Of skopeo's errors, those that another try would meet again."""
GROUP = Path("/usr/local/lib/volley/container-group")
"""Starts a program in a group that reaches no metadata service: infra/boot/files/containers/."""
LOGINS = ".registry-logins.json"
"""Below the home of the user, in the format of docker's config.json: `volley registry-login`."""
OWN_LOGIN = Path("/run/volley-registry/auth.json")
"""The login of the machine's identity to an Azure Container Registry: registry-login.service."""
KEY, NAMESPACE = b"registry-logins", b"volley"
"""Of LOGINS in Ray's store, which is in memory."""
SKOPEO_MESSAGE = re.compile(r'msg="((?:[^"\\]|\\.)*)"')


def resolve(image: str) -> str:
    """Returns the image by its digest: a tag may move while machines join.

    Raises:
        UserError: The registry does not give this image to this machine.
        TemporaryError: The registry did not answer.
    """
    if "@sha256:" in image:
        return image
    digest = _skopeo(image, "inspect", "--format", "{{.Digest}}", f"docker://{image}").strip()
    name, colon, tag = image.rpartition(":")
    return f"{name if colon and '/' not in tag else image}@{digest}"


def pull(image: str, gcs: str | None = None) -> Path:
    """Returns the folder of an unpacked image: rootfs, and config.json of the OCI runtime.

    The first process on a machine pulls; others wait for it.

    Args:
        image: By its digest.
        gcs: Address of Ray's GCS, which knows the logins that the head has.

    Raises:
        UserError: The registry does not give this image to this machine.
        TemporaryError: The registry did not answer, or there is no space.
    """
    images = Path.home() / IMAGES
    bundle = images / hashlib.sha256(image.encode()).hexdigest()[:16]
    if bundle.is_dir():
        return bundle
    images.mkdir(exist_ok=True)
    with file_lock(images / "lock"):
        if bundle.is_dir():
            return bundle
        if gcs is not None:
            _take_logins(gcs)
        aside = images / "aside"
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir()
        _skopeo(image, "copy", "--quiet", f"docker://{image}", f"oci:{aside}/image:pulled")
        # A container may change files of its own group alone: it knows no other one.
        group = [str(GROUP)] if GROUP.exists() else []
        unpack = [*group, "umoci", "unpack", "--rootless", "--image", f"{aside}/image:pulled"]
        unpacked = subprocess.run(
            [*unpack, str(aside / "bundle")], capture_output=True, text=True, check=False
        )
        if unpacked.returncode != 0:
            raise TemporaryError(f"image: {image}: {unpacked.stderr.strip().splitlines()[-1]}")
        (aside / "bundle").rename(bundle)
        shutil.rmtree(aside)
    return bundle


def pull_on_every_node(image: str, say: Callable[[str], None]) -> None:
    """Pulls an image on all machines of the cluster that this process is connected to.

    Args:
        image: By its digest.
        say: Called with the progress.

    Raises:
        UserError: The registry does not give this image to a machine.
        TemporaryError: A machine could not pull it now.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    _share_logins(ray.get_runtime_context().gcs_address)
    task = ray.remote(num_cpus=0, max_retries=0)(_pulled)
    asked = {}
    for node in ray.nodes():
        if node["Alive"]:
            there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            asked[task.options(scheduling_strategy=there).remote(image)] = node["NodeName"]
    waiting = list(asked)
    while waiting:
        say(f"pulling {image}: {len(asked) - len(waiting)} of {len(asked)} machines have it")
        (done,), waiting = ray.wait(waiting)
        try:
            error, final = ray.get(done)
        except ray.exceptions.RayError:
            # The machine is gone; another one pulls when it starts its first worker.
            continue
        if error:
            raise (UserError if final else TemporaryError)(f"{error} ({asked[done]})")


def _pulled(image: str) -> tuple[str, bool]:
    """Pulls on this machine; returns what went wrong, and whether another try would help."""
    import ray

    try:
        pull(image, ray.get_runtime_context().gcs_address)
    except (UserError, TemporaryError) as error:
        return str(error), isinstance(error, UserError)
    return "", False


def _share_logins(gcs: str) -> None:
    """Puts this machine's logins into Ray's store."""
    from ray._raylet import GcsClient  # type: ignore[attr-defined]

    logins = Path.home() / LOGINS
    content = logins.read_bytes() if logins.exists() else b""
    GcsClient(address=gcs).internal_kv_put(KEY, content, True, NAMESPACE)


def _take_logins(gcs: str) -> None:
    """Writes the logins of Ray's store to this machine, for this user alone."""
    from ray._raylet import GcsClient  # type: ignore[attr-defined]

    content = GcsClient(address=gcs).internal_kv_get(KEY, NAMESPACE)
    if content is not None:
        aside = Path.home() / f"{LOGINS}.new"
        aside.touch(0o600)
        aside.write_bytes(content)
        aside.replace(Path.home() / LOGINS)


def _logins_for(image: str) -> Path:
    logins = Path.home() / LOGINS
    content = logins.read_text() if logins.exists() else ""
    return logins if f'"{image.partition("/")[0]}"' in content else OWN_LOGIN


def _skopeo(image: str, *arguments: str) -> str:
    done = subprocess.run(
        ["skopeo", *arguments],
        env={**os.environ, "REGISTRY_AUTH_FILE": str(_logins_for(image))},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 0:
        return done.stdout
    message = SKOPEO_MESSAGE.search(done.stderr)
    text = message[1].replace('\\"', '"') if message else done.stderr.strip()
    text = text.partition(": ")[2] if text.startswith("Error parsing image name") else text
    raise (UserError if FINAL.search(text) else TemporaryError)(f"image: {image}: {text}")
