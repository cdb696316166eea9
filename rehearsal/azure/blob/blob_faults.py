"""Faults of the storage accounts, which tests and acts switch on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FILE = "faults.json"
"""In the folder of the storage accounts."""
Mode = Literal["ok", "busy", "lost"]
"""busy: each request is answered with 503. lost: it is executed, and no answer arrives."""


@dataclass
class BlobFaults:
    mode: Mode = "ok"
