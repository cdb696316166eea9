"""registry_login.py FILE: exchanges this machine's identity for a login to CONTAINER_REGISTRY.

The login is valid for three hours and lets its holder pull, no more: the identity has no other role
there. https://github.com/Azure/acr/blob/main/docs/AAD-OAuth.md
"""

from __future__ import annotations

import json
import os
import sys
import urllib.parse
import urllib.request
from base64 import b64encode
from pathlib import Path

from machine_token import NO_PROXY, REQUEST_S, token

ARM = "https://management.azure.com/"
USER = "00000000-0000-0000-0000-000000000000"
"""The name that a registry wants beside a token."""


def main(file: Path) -> None:
    registry = os.environ["CONTAINER_REGISTRY"]
    form = {"grant_type": "access_token", "service": registry, "access_token": token(ARM)}
    request = urllib.request.Request(
        f"https://{registry}/oauth2/exchange", urllib.parse.urlencode(form).encode()
    )
    with NO_PROXY.open(request, timeout=REQUEST_S) as answer:
        login = f"{USER}:{json.load(answer)['refresh_token']}"
    auth = {"auths": {registry: {"auth": b64encode(login.encode()).decode()}}}
    aside = file.with_suffix(".new")
    aside.write_text(json.dumps(auth))
    aside.replace(file)
    print(f"logged in to {registry}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
