"""What the verbs print: a table for people, or JSON for scripts."""

from __future__ import annotations

import json
import sys
from typing import Any

from rich.console import Console, RenderableType

PIPE_WIDTH = 200
"""Columns where nobody's terminal says how many it has."""


def console() -> Console:
    """Returns where to print; what a run has said is not markup."""
    width = None if sys.stdout.isatty() else PIPE_WIDTH
    return Console(width=width, highlight=False, markup=False)


def show(json_wanted: bool, answer: dict[str, Any], *shown: RenderableType) -> None:
    """Prints an answer as JSON, or what is shown of it."""
    if json_wanted:
        print(json.dumps(answer, indent=2))
        return
    out = console()
    for one in shown:
        out.print(one)


def stands(answer: dict[str, Any]) -> str:
    """Returns "pong: QUEUED, position 2"."""
    place = f", position {answer['position']}" if answer.get("position") else ""
    return f"{answer['name']}: {answer['state']}{place}"


def duration(seconds: float) -> str:
    """Returns "4 s", "12 min", "3.5 h" or "2.1 d"."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 100 * 3600 else f"{seconds / 86400:.1f} d"


def printable(text: str) -> str:
    """Returns what an environment has said without what would command the terminal."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def number(value: float | None) -> str:
    """Returns "1,234,567", "18.2", or nothing for None."""
    if value is None:
        return ""
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 1000 else f"{value:.2f}"
