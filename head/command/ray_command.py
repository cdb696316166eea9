"""`volley-head ray`: Ray's own questions about the cluster, with the cluster's token."""

import os
import shlex
from argparse import Namespace
from pathlib import Path

from ..paths import HOME, PYTHON, ROOT
from ..queue.store import RefusedError, Store

QUESTIONS = ("status", "list", "get", "summary", "memory", "logs")
"""Commands of `ray` that change nothing."""
ENVIRONMENT = ("etc/volley/ray.env", "etc/volley/machine.env")


def ray(_: Store, options: Namespace) -> None:
    """Becomes Ray's command.

    Raises:
        RefusedError: It is not one that only asks.
    """
    words: list[str] = options.words
    if not words or words[0] not in QUESTIONS:
        given = words[0] if words else "nothing"
        raise RefusedError(
            f"ray {given}: only commands that change nothing are allowed: {', '.join(QUESTIONS)}",
            "volley ray -- status",
        )
    variables = {**os.environ, "HOME": str(HOME)}
    for name in ENVIRONMENT:
        variables.update(_variables(ROOT / name))
    program = str(PYTHON.with_name("ray"))
    os.execve(program, [program, *words], variables)


def _variables(file: Path) -> dict[str, str]:
    """Reads a file of systemd's EnvironmentFile=."""
    return dict(pair.split("=", 1) for pair in shlex.split(file.read_text(), comments=True))
