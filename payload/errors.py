"""Errors as people read them: one line; exit code 2 if the user can correct the input, else 1.

For what may pass the exit code is 75: may_pass.py.
"""

import difflib
import re
import traceback
from collections.abc import Iterable

CONTROL = re.compile(
    r"(?P<colour>\x1b\[[0-9;]*m)"
    r"|\x1b\[[0-?]*[ -/]*[@-~]"  # moves the cursor, clears the screen ...
    r"|\x1b[]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)?"  # sets the title, the clipboard ...
    r"|\x1b[ -/]*[0-~]"  # resets the terminal, selects a character set ...
    r"|(?P<line>\r\n?)"
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
)
"""What controls a terminal: C0 and C1 characters, their sequences, and changes of direction."""
SECRET = re.compile(
    r"(?<=://)(?!git@)[^/\s]+(?=@)|(?<=sql://)[^\s:/]+:\S+(?=@)|(?<=[?&]password=)[^&\s]+"
)
"""A password or token in a URL, with the user's name; a database's password may have slashes."""


def printable(text: str, colours: bool = False) -> str:
    """Returns a text that cannot control a terminal; newline and tab stay.

    Args:
        colours: Whether sequences that only change the colour stay too.
    """

    def kept(control: re.Match[str]) -> str:
        return "\n" if control["line"] else (control["colour"] or "") * colours

    return CONTROL.sub(kept, text)


def without_secrets(text: str) -> str:
    """Returns a text in which *** stands for the passwords and tokens of URLs."""
    return SECRET.sub("***", text)


class UserError(Exception):
    """Input that cannot be used. Its text is one line: the option, its value, what is allowed."""

    def __init__(self, text: str) -> None:
        # A user's key or value may contain line breaks, a name from a cluster anything.
        super().__init__(printable(without_secrets(" ".join(text.splitlines()))))


class TemporaryError(Exception):
    """Something outside volley that fails now; the same input may work later. Text in one line.

    The exit code is 75, and the queue of a cluster tries again.
    """

    def __init__(self, text: str) -> None:
        super().__init__(printable(without_secrets(" ".join(text.split()))))


def nearest(name: str, names: Iterable[str]) -> str:
    """Returns ' (did you mean X?)' for the one of `names` most like `name`, or ''."""
    by_lower = {valid.lower(): valid for valid in names}
    matches = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.5)
    return f" (did you mean {by_lower[matches[0]]}?)" if matches else ""


def first_line(error: BaseException) -> str:
    """Returns an error's type and the first line of its text, without the passwords of URLs.

    For errors of volley it is only the text.

    For a RayTaskError it describes the error of the other process, since the RayTaskError's own
    first line only names the process. For an error without text it describes the cause.
    """
    while isinstance(cause := getattr(error, "cause", None), BaseException):
        error = cause
    # RLlib raises a bare RuntimeError from an environment's own error.
    while not str(error) and error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, UserError | TemporaryError):
        return str(error)
    return without_secrets(f"{type(error).__name__}: {error}".splitlines()[0])


def raised(error: BaseException) -> str:
    """Returns the first cause of an error as one line, with the place that raised it."""
    while error.__cause__ is not None:
        error = error.__cause__
    places = traceback.extract_tb(error.__traceback__)
    where = f" ({places[-1].filename}, line {places[-1].lineno})" if places else ""
    return f"{first_line(error)}{where}"
