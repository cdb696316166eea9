"""`volley rm`: removes an experiment that is over from the head's disk."""

import argparse
import sys
from collections.abc import Mapping
from typing import Any

from payload.errors import UserError
from volley.errors import sent
from volley.head import Head
from volley.stack import Stack
from volley.tables import show


def remove(options: argparse.Namespace) -> int:
    """Shows what is there and asks, then removes it.

    Raises:
        UserError: It is not over, or nobody can be asked.
    """
    head = Head(Stack(options.stack))
    there = head.ask("rm", options.name, "--look")
    if not options.yes and not _agreed(there):
        print("Nothing was removed.", file=sys.stderr)
        return 1
    sent.set()
    try:
        answer = head.ask("rm", options.name)
    except UserError:
        if not head.has_repeated:
            raise
        answer = there  # The head had removed it when the connection was lost.
    show(options.as_json, answer, f"{options.name}: removed from the head, {_size(answer)}")
    return 0


def _agreed(there: Mapping[str, Any]) -> bool:
    if not sys.stdin.isatty():
        raise UserError(f"rm {there['name']}: cannot ask for confirmation here. Next: add --yes")
    print(f"{there['name']} is {there['state']} and has {_size(there)} on the head.")
    if there["unsaved"]:
        print(f"Files that are not in the results account and would be lost: {there['unsaved']}")
    else:
        print("The results account keeps its runs.")
    try:
        return input("Remove it from the head? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


def _size(answer: Mapping[str, Any]) -> str:
    return f"{answer['bytes'] / 2**20:,.1f} MiB"
