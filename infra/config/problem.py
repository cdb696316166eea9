"""One problem of a stack's configuration."""

from __future__ import annotations

import json
from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """One problem, shown as a line."""

    key: str
    value: object
    """Shown, so never a secret."""
    allowed: str
    """What is wrong, and what is allowed."""

    def __str__(self) -> str:
        return f"{self.key}: {_shown(self.value)}: {self.allowed}"


def _shown(value: object) -> str:
    try:
        return json.dumps(value)
    except (TypeError, ValueError):
        return str(value)  # YAML has types that JSON lacks, for example dates.
