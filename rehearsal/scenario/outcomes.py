"""What each act expected and what was seen: told as it happens, then as a table and as JSON."""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from payload.atomic_file import replace_text

WIDTH = 140


@dataclass(frozen=True)
class Outcome:
    """One line of the table."""

    act: str
    expected: str
    seen: str
    seconds: float
    ok: bool


class UnexpectedError(Exception):
    """What an act saw is not what was expected."""


class Outcomes:
    """The acts so far."""

    def __init__(self) -> None:
        # A pipe has no width to fit into.
        width = None if sys.stdout.isatty() else WIDTH
        self.console = Console(highlight=False, width=width)
        self.start = time.monotonic()
        self.all: list[Outcome] = []

    def act(self, name: str, expected: str, act: Callable[..., str], *arguments: Any) -> bool:
        """Calls an act, which returns what it saw; says whether that was expected.

        An act that raises has failed; the scenario continues.
        """
        self.say(f"{name} ...")
        start = time.monotonic()
        try:
            seen, ok = act(*arguments), True
        except Exception as error:
            seen, ok = str(error).strip() or type(error).__name__, False
            if not isinstance(error, UnexpectedError | TimeoutError):
                traceback.print_exc(file=sys.stderr)
        seconds = time.monotonic() - start
        self.all.append(Outcome(name, expected, seen, round(seconds, 1), ok))
        self.say(f"{name}: {'' if ok else 'NOT AS EXPECTED: '}{seen}")
        return ok

    def say(self, text: str) -> None:
        self.console.print(
            f"{time.monotonic() - self.start:6.1f} s  {text}", markup=False, soft_wrap=True
        )

    @property
    def ok(self) -> bool:
        return all(outcome.ok for outcome in self.all)

    def sum_up(self, not_rehearsed: list[str], file: Path) -> None:
        """Prints the table and what was not rehearsed; writes both to a file as JSON."""
        table = Table("act", "expected", "seen", "s", title="Rehearsal")
        for one in self.all:
            seen = one.seen if one.ok else f"NOT AS EXPECTED: {one.seen}"
            style = None if one.ok else "red"
            table.add_row(one.act, one.expected, seen, f"{one.seconds:.1f}", style=style)
        self.console.print(table)
        self.console.print("Declared, not rehearsed:")
        for line in not_rehearsed:
            self.console.print(f"  {line}", markup=False)
        total = time.monotonic() - self.start
        verdict = "as expected" if self.ok else "NOT AS EXPECTED"
        self.console.print(f"{len(self.all)} acts in {total:.0f} s: {verdict}; {file}")
        content = {
            "ok": self.ok,
            "seconds": round(total, 1),
            "acts": [asdict(outcome) for outcome in self.all],
            "declared, not rehearsed": not_rehearsed,
        }
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_text(file, json.dumps(content, indent=1))
