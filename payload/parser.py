"""An ArgumentParser whose errors are one line."""

from __future__ import annotations

import argparse
import re
from typing import NoReturn

from payload.errors import UserError, nearest

INVALID_CHOICE = re.compile(r"invalid choice: '(?P<given>[^']*)' \(choose from (?P<known>.*)\)")
"""What argparse says of an unknown command; newer Pythons leave the quotes out."""


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are one line, with the nearest known option or command."""

    def error(self, message: str) -> NoReturn:
        unknown = message.removeprefix("unrecognized arguments: ").split()[0]
        if unknown.startswith("-") and message.startswith("unrecognized"):
            message += nearest(unknown, self._all_options())
        if choice := INVALID_CHOICE.search(message):
            known = choice["known"].replace("'", "").split(", ")
            message = message.replace(" (choose", f"{nearest(choice['given'], known)} (choose")
        raise UserError(message)

    def _all_options(self) -> list[str]:
        """This parser's options and those of its commands, which do not report errors."""
        options = list(self._option_string_actions)
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                for command in action.choices.values():
                    options += command._option_string_actions
        return options
