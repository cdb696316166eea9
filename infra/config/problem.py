"""One thing that is wrong with a stack's configuration."""

from __future__ import annotations

import json
from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong."""

    key: str
    value: object
    """Shown, so never a secret."""
    allowed: str
    """What is wrong with it and what would be right."""

    def __str__(self) -> str:
        return f"{self.key}: {_shown(self.value)}: {self.allowed}"


def _shown(value: object) -> str:
    try:
        return json.dumps(value)
    except (TypeError, ValueError):
        return str(value)  # YAML knows more than JSON: dates, for example.
