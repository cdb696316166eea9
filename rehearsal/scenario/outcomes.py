"""What each act expected and what was seen: printed as it happens, then as a table and as JSON."""

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
    """An act did not see what it expected."""


class Outcomes:
    def __init__(self) -> None:
        # A pipe has no width.
        width = None if sys.stdout.isatty() else WIDTH
        self.console = Console(highlight=False, width=width)
        self.start = time.monotonic()
        self.all: list[Outcome] = []

    def act(self, name: str, expected: str, act: Callable[..., str], *arguments: Any) -> bool:
        """Runs an act, which returns what it saw; returns whether it was as expected.

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
        """Prints the table and the list of what was not rehearsed; writes both to a JSON file."""
        table = Table("act", "expected", "seen", "s", title="Rehearsal")
        for outcome in self.all:
            seen = outcome.seen if outcome.ok else f"NOT AS EXPECTED: {outcome.seen}"
            seconds = f"{outcome.seconds:.1f}"
            style = None if outcome.ok else "red"
            table.add_row(outcome.act, outcome.expected, seen, seconds, style=style)
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
