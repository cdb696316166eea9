"""The command line: an ArgumentParser whose errors are one line, and how `volley` is typed."""

import argparse
import os
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from payload.errors import UserError, nearest


def command_name(absolute: bool = False) -> str:
    """Returns "volley", or the path of its script if the PATH does not lead to it.

    `make train` does not activate the environment in your shell: there it is .venv/bin/volley.

    Args:
        absolute: Whether the path must work in another folder.
    """
    script = Path(sys.executable).with_name("volley")
    on_path = shutil.which("volley")
    if not script.exists() or (on_path is not None and os.path.samefile(on_path, script)):
        return "volley"
    here = Path.cwd()
    if script.is_relative_to(here) and not absolute:
        script = script.relative_to(here)
    return shlex.quote(str(script))


def ui_command(results: Path) -> str:
    """Returns the command that serves MLflow's pages of the runs in a folder."""
    default = results.resolve() == Path("results").resolve()
    return f"{command_name()} ui" + ("" if default else f" --results {shlex.quote(str(results))}")


INVALID_CHOICE = re.compile(r"invalid choice: '(?P<given>[^']*)' \(choose from (?P<valid>.*)\)")
"""argparse's message about an unknown choice; newer Pythons do not quote the valid choices."""


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are one line, with the nearest known option or command."""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Parses all arguments; the command itself reports unknown ones.

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
