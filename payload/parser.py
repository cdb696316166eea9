"""An ArgumentParser whose errors are one line."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Any, NoReturn

from payload.errors import UserError, nearest

INVALID_CHOICE = re.compile(r"invalid choice: '(?P<given>[^']*)' \(choose from (?P<known>.*)\)")
"""What argparse says of an unknown command; newer Pythons leave the quotes out."""


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are one line, with the nearest known option or command."""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Parses all arguments: a command itself reports those that it does not know.

        Raises:
            UserError: An argument is not known.
        """
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            near = nearest(unknown[0], self._option_string_actions)
            self.error(f"unrecognized arguments: {' '.join(unknown)}{near}")
        return found, []

    def error(self, message: str) -> NoReturn:
        if choice := INVALID_CHOICE.search(message):
            known = choice["known"].replace("'", "").split(", ")
            message = message.replace(" (choose", f"{nearest(choice['given'], known)} (choose")
        raise UserError(message)
