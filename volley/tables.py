"""The output of the commands: a table for people, or JSON for scripts."""

import json
import sys
from collections.abc import Iterator
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from payload.errors import printable
from volley.errors import as_typed

PIPE_WIDTH = 200
"""Columns if the output is not a terminal."""


class _Console(Console):
    """Prints what a cluster says without the characters that control a terminal."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            # A segment with `control` is rich's own, as are all colours.
            if segment.control:
                yield segment
            else:
                yield segment._replace(text=printable(segment.text))


def console() -> Console:
    """Returns the console; text of a run is not markup."""
    width = None if sys.stdout.isatty() else PIPE_WIDTH
    return _Console(width=width, highlight=False, markup=False)


def show(as_json: bool, answer: dict[str, Any], *parts: RenderableType) -> None:
    """Prints an answer as JSON, or the parts that people read."""
    if as_json:
        print(json.dumps(answer, indent=2))
        return
    out = console()
    for part in parts:
        out.print(as_typed(part) if isinstance(part, str) else part)


def in_words(answer: dict[str, Any]) -> str:
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


def number(value: float | None) -> str:
    """Returns "1,234,567", "18.2", or nothing for None."""
    if value is None:
        return ""
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 1000 else f"{value:.2f}"


def dollars(value: float | None) -> str:
    """Returns "1,234.50", or nothing for None."""
    return "" if value is None else f"{value:,.2f}"
