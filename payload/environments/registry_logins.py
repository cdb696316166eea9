"""Logins to container registries: those that people gave the head, and the machine's own."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from payload.atomic_file import replace_text

LOGINS, TAKEN = ".registry-logins.json", ".registry-logins-of-the-head.json"
"""Below the home of the user, in the format of docker's config.json: what `volley registry-login`
wrote on the head, and a worker's copy."""
OWN_LOGIN = Path("/run/volley-registry/auth.json")
"""The login of the machine's identity to an Azure Container Registry: registry-login.service."""
PROPAGATES_S = 600.0
"""A role assignment can take ten minutes to propagate."""
KEY, NAMESPACE = b"registry-logins", b"volley"
"""Of LOGINS in Ray's GCS, which is in memory."""


def share_logins(gcs: str) -> None:
    """Puts this machine's logins into Ray's GCS."""
    from ray._raylet import GcsClient  # type: ignore[attr-defined]

    logins = Path.home() / LOGINS
    content = logins.read_bytes() if logins.exists() else b"{}"
    GcsClient(address=gcs).internal_kv_put(KEY, content, True, NAMESPACE)


def take_logins(gcs: str) -> None:
    """Writes the logins of Ray's GCS to this machine, for this user alone."""
    from ray._raylet import GcsClient  # type: ignore[attr-defined]

    content = GcsClient(address=gcs).internal_kv_get(KEY, NAMESPACE)
    if content is not None:
        replace_text(Path.home() / TAKEN, content.decode(), 0o600)


def logins_for(image: str) -> Path:
    """Returns the file with a login to the image's registry; waits for that of a new machine."""
    registry = registry_of(image)
    for logins in (Path.home() / LOGINS, Path.home() / TAKEN):
        if logins.exists() and registry in json.loads(logins.read_text()).get("auths", {}):
            return logins
    end = time.monotonic() + PROPAGATES_S
    while registry == os.environ.get("CONTAINER_REGISTRY") and not OWN_LOGIN.exists():
        if time.monotonic() > end:
            break
        time.sleep(2)
    return OWN_LOGIN


def registry_of(image: str) -> str:
    """Returns the address of an image's registry, as docker reads the name."""
    first, slash, _ = image.partition("/")
    named = slash and (first == "localhost" or not {".", ":"}.isdisjoint(first))
    return first if named else "docker.io"
