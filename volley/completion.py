"""`volley completion`: the script with which a shell completes commands and experiments."""

from __future__ import annotations

import argparse
from typing import Any

from volley.stack import Stack

SHELLS = ("bash", "zsh", "fish")


def completion(shell: str) -> int:
    """Prints the script."""
    from argcomplete.shell_integration import shellcode

    print(shellcode(["volley"], shell=shell))
    return 0


def experiments(parsed_args: argparse.Namespace, **_: Any) -> list[str]:
    """Returns the names in the last status."""
    from volley.status import known_names

    return known_names(Stack(parsed_args.stack))
