"""Errors with the next command to type."""

import re
import shlex
import sys
import threading
from contextvars import ContextVar
from importlib.util import find_spec
from pathlib import Path

from payload.command_line import command_name
from payload.errors import UserError

CLONE = Path(__file__).parents[1]
"""The clone of the repository, unless volley was installed from its wheel."""


OF_STACK = re.compile(
    r"\b((?:volley (?:up|down|status|cost|start|sleep|dashboard|jupyter|ssh|ssh-config|ray|exec"
    r"|registry-login|submit|logs|stop|resume|pull|rm|ui(?= --from-results))"
    r"|pulumi (?:config|stack) (?:set|get|output))"
    r"(?! --stack)(?![\w-]))"
)
"""Commands in a message that act on the selected stack unless --stack names another one."""


class LostError(UserError):
    """The connection to the head was lost in the middle of a command."""


def refused(what: str, next_command: str) -> UserError:
    """Returns an error that says what to type next."""
    return UserError(f"{what}. Next: {next_command}")


sent = threading.Event()
"""Set once a command has sent what changes the cluster: Ctrl-C before that changes nothing."""


selected: ContextVar[str | None] = ContextVar("selected", default=None)
"""The stack that this command's --stack names."""


def as_typed(text: str) -> str:
    """Returns a text with commands as they are typed in this shell, for this command's stack."""
    if (stack := selected.get()) is not None:
        text = OF_STACK.sub(rf"\1 --stack {shlex.quote(stack)}", text)
    return re.sub(r"(?<=: )volley(?= [a-z-])", lambda _: command_name(), text)


def need(module: str, package: str = "", extra: str = "payload") -> None:
    """Raises UserError unless a package of an extra of pyproject.toml is installed.

    Args:
        package: Its name for people, if it is not the module's.
    """
    if find_spec(module) is None:
        raise not_installed(package or module, extra)


def not_installed(package: str, extra: str) -> UserError:
    """Returns the error of a missing package, with the extra of pyproject.toml that has it."""
    in_clone = (CLONE / "Makefile").exists()
    pip = f"{shlex.quote(sys.executable)} -m pip install 'volley-rl[{extra}]'"
    return refused(f"{package} is not installed", f"make .venv/{extra}" if in_clone else pip)
