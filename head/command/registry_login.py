"""`volley-head registry-login`: keeps what a container registry wants to know, for ray alone."""

import sys
from argparse import Namespace
from typing import Any

from ..files import read_json, replace_json
from ..paths import REGISTRY_LOGINS
from ..queue.store import RefusedError, Store


def registry_login(_: Store, options: Namespace) -> dict[str, Any]:
    """Keeps the login that stdin has, or with an empty stdin removes the registry's.

    Raises:
        RefusedError: There is nothing to remove.
    """
    logins = read_json(REGISTRY_LOGINS).get("auths", {})
    login = sys.stdin.read().strip()
    if login:
        logins[options.registry] = {"auth": login}
    elif logins.pop(options.registry, None) is None:
        known = f"; there are logins to {', '.join(logins)}" if logins else ""
        raise RefusedError(f"{options.registry}: no login{known}")
    # The format of docker's config.json, which skopeo reads.
    replace_json(REGISTRY_LOGINS, {"auths": logins}, 0o600)
    return {"registries": sorted(logins)}
