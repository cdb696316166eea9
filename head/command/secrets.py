"""`volley-head secrets`: keeps the secrets of an experiment, for ray alone."""

import json
import shlex
import sys
from argparse import Namespace
from typing import Any

from ..files import replace
from ..paths import SECRETS
from ..queue.store import Store


def secrets(_: Store, options: Namespace) -> dict[str, Any]:
    """Keeps the values that stdin has by name, as shell code, until the experiment is removed."""
    values: dict[str, str] = json.load(sys.stdin)
    SECRETS.mkdir(mode=0o700, exist_ok=True)
    lines = (f"export {name}={shlex.quote(value)}\n" for name, value in values.items())
    replace(SECRETS / options.name, "".join(lines).encode(), 0o600)
    return {"secrets": sorted(values)}


def remove_secrets(name: str) -> None:
    (SECRETS / name).unlink(missing_ok=True)
