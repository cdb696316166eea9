"""Container images: named by digest, pulled once a machine, checked before anything starts.

skopeo copies an image from its registry, and umoci unpacks it; neither needs root.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from payload.environments.every_node import on_every_node
from payload.environments.inputs import file_lock, remove_copies
from payload.environments.registry_logins import logins_for, share_logins, take_logins
from payload.errors import TemporaryError, UserError, first_line

IMAGES = ".images"
"""Below the home of the user; a folder for each image."""
FINAL = re.compile(
    r"manifest unknown|name unknown|not known to registry|resource is denied|unauthorized"
    r"|authentication required|no image found|invalid reference|unsupported|not supported",
    re.I,
)
"""Of skopeo's errors, those that another try would meet again."""
PASSES = re.compile("no space left|input/output error", re.I)
"""Of umoci's errors, those that another try may not meet again."""
COPY_LIMIT = "60m"
SKOPEO_MESSAGE = re.compile(r'msg="((?:[^"\\]|\\.)*)"')


def resolve(image: str) -> str:
    """Returns the image by its digest: a tag may move while machines join.

    Raises:
        UserError: The registry does not give this image to this machine.
        TemporaryError: The registry did not answer.
    """
    name, _, digest = image.partition("@")
    if not digest:
        digest = _skopeo(image, "inspect", "--format", "{{.Digest}}", f"docker://{image}").strip()
    return f"{re.sub(r':[^/:]+$', '', name)}@{digest}"


def pull(image: str, gcs: str | None = None) -> Path:
    """Returns the folder of an unpacked image: rootfs, and config.json of the OCI runtime.

    The first process on a machine pulls; others wait for it.

    Args:
        image: By its digest.
        gcs: Address of Ray's GCS, which knows the logins that the head has.

    Raises:
        UserError: The registry does not give this image to this machine.
        TemporaryError: The registry did not answer, or the disk is full.
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
            take_logins(gcs)
        for left in images.glob("aside-*"):
            remove_copies(left)
        # A name of its own: skopeo may outlive a pull that was killed.
        aside = Path(tempfile.mkdtemp(dir=images, prefix="aside-"))
        try:
            _unpack(image, aside)
            os.sync()  # Only a whole image has the final name, after a power cut too.
            (aside / "bundle").rename(bundle)
        finally:
            remove_copies(aside)
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

    share_logins(ray.get_runtime_context().gcs_address)
    names = on_every_node(_problem, image)
    waiting = list(names)
    while waiting:
        say(f"pulling {image}: {len(names) - len(waiting)} of {len(names)} machines have it")
        (done,), waiting = ray.wait(waiting)
        try:
            error = ray.get(done)
        except (ray.exceptions.RayTaskError, ray.exceptions.RuntimeEnvSetupError) as failure:
            raise TemporaryError(f"image: {image}: {first_line(failure)} ({names[done]})") from None
        except ray.exceptions.RayError:
            # The machine is gone; another one pulls when it starts its first worker.
            continue
        if error:
            raise type(error)(f"{error} ({names[done]})")


def _problem(image: str) -> UserError | TemporaryError | None:
    """Pulls on this machine; returns what went wrong."""
    import ray

    try:
        pull(image, ray.get_runtime_context().gcs_address)
    except (UserError, TemporaryError) as error:
        return error
    except OSError as error:
        return TemporaryError(f"image: {image}: {error}")
    return None


def _unpack(image: str, aside: Path) -> None:
    """Copies an image from its registry and unpacks it as `bundle`.

    Raises:
        UserError, TemporaryError: As `pull`.
    """
    copy = f"{aside}/image:pulled"
    _skopeo(image, "copy", "--quiet", f"docker://{image}", f"oci:{copy}")
    unpack = ["umoci", "unpack", "--rootless", "--image", copy, str(aside / "bundle")]
    # The image's user may have no entry in its passwd, and is not used.
    for command in (["umoci", "config", "--image", copy, "--config.user", "0"], unpack):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines() or [f"umoci ended with {done.returncode}"]
            passes = done.returncode < 0 or PASSES.search(lines[-1])
            kind = TemporaryError if passes else UserError
            raise kind(f"image: {image}: {lines[-1].removeprefix('⨯').strip()}")


def _skopeo(image: str, *arguments: str) -> str:
    done = subprocess.run(
        ["skopeo", "--command-timeout", COPY_LIMIT, *arguments],
        env={**os.environ, "REGISTRY_AUTH_FILE": str(logins_for(image))},
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
