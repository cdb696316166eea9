"""`volley-head secrets`: keeps the secrets of an experiment, for ray alone."""

import json
import shlex
import sys
from argparse import Namespace
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..files import replace
from ..paths import SECRETS
from ..queue.store import Store


def secrets(_: Store, options: Namespace) -> dict[str, Any]:
    """Keeps the values that stdin has by name, as shell code, until a submit is accepted."""
    values: dict[str, str] = json.load(sys.stdin)
    SECRETS.mkdir(mode=0o700, exist_ok=True)
    lines = (f"export {name}={shlex.quote(value)}\n" for name, value in values.items())
    replace(_sent(options.name), "".join(lines).encode(), 0o600)
    return {"secrets": sorted(values)}


def accept_secrets(name: str) -> None:
    """Gives an experiment the secrets that were sent, until it is removed."""
    with suppress(FileNotFoundError):  # The submit is repeated: it has them already.
        _sent(name).replace(SECRETS / name)


def remove_secrets(name: str) -> None:
    for path in (SECRETS / name, _sent(name)):
        path.unlink(missing_ok=True)


def _sent(name: str) -> Path:
    """Returns the file of secrets whose submit has not been accepted yet."""
    return SECRETS / f".{name}.sent"
