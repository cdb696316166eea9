"""`volley-head secrets`: keeps the secrets of an experiment, for ray alone."""

import json
import shlex
import sys
import time
from argparse import Namespace
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..files import replace
from ..paths import SECRETS
from ..queue.store import Store

SENT = ".sent"
KEPT_S = 86_400.0
"""How long a submit may take to use the secrets that were sent before it."""


def secrets(_: Store, options: Namespace) -> dict[str, Any]:
    """Keeps the values that stdin has by name, as shell code, until a submit is accepted.

    Those of submits that were refused go after a day.
    """
    values: dict[str, str] = json.load(sys.stdin)
    SECRETS.mkdir(mode=0o700, exist_ok=True)
    for path in SECRETS.glob(f".*{SENT}"):
        with suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime > KEPT_S:
                path.unlink()
    lines = (f"export {name}={shlex.quote(value)}\n" for name, value in values.items())
    replace(_sent(options.name), "".join(lines).encode(), 0o600)
    return {"secrets": sorted(values)}


def accept_secrets(name: str, is_another: bool) -> None:
    """Gives an experiment the secrets that were sent, until it is removed.

    Args:
        is_another: Whether it replaces one of the name, whose secrets go. Otherwise it keeps those
            that were not sent again.
    """
    file, sent = SECRETS / name, _sent(name)
    kept = b"" if is_another or not file.exists() else file.read_bytes()
    with suppress(FileNotFoundError):  # The submit is repeated: it has them already.
        # The shell takes the last value of a variable.
        replace(file, kept + sent.read_bytes(), 0o600)
        sent.unlink()


def remove_secrets(name: str) -> None:
    for path in (SECRETS / name, _sent(name)):
        path.unlink(missing_ok=True)


def _sent(name: str) -> Path:
    """Returns the file of secrets whose submit has not been accepted yet."""
    return SECRETS / f".{name}{SENT}"
