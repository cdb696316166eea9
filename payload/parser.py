"""An ArgumentParser whose errors are one line."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Any, NoReturn

from payload.command_name import command_name
from payload.errors import UserError, nearest

INVALID_CHOICE = re.compile(r"invalid choice: '(?P<given>[^']*)' \(choose from (?P<valid>.*)\)")
"""argparse's message about an unknown choice; newer Pythons leave the quotes of the valid out."""


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are one line, with the nearest known option or command."""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Parses all arguments: a command itself reports those that it does not know.

        Raises:
            UserError: An argument is unknown.
        """
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            near = nearest(unknown[0], self._option_string_actions)
            self.error(f"unrecognized arguments: {' '.join(unknown)}{near}")
        return options, []

    def error(self, message: str) -> NoReturn:
        if choice := INVALID_CHOICE.search(message):
            given, valid = choice["given"], choice["valid"].replace("'", "").split(", ")
            if self._subparsers is None:
                message = message.replace(" (choose", f"{nearest(given, valid)} (choose")
            else:
                program = command_name() if self.prog == "volley" else self.prog
                message = (
                    f"{given!r} is not a command{nearest(given, valid)}. Next: {program} --help"
                )
        raise UserError(message)
