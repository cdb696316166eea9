"""What the autoscaler knows of the workers, in a file for `volley status`."""

from __future__ import annotations

import json
import logging
import time
from dataclasses import asdict, dataclass
from pathlib import Path

logger = logging.getLogger(__name__)

FILE = "cluster-workers.json"
"""In the head's /var/lib/volley."""


@dataclass(frozen=True)
class Workers:
    """The workers; VMs by their names."""

    wanted: int
    there: list[str]
    """They have joined Ray."""
    coming: list[str]
    leaving: list[str]
    why: str
    """Why some are missing, in Azure's words; empty: nothing is wrong."""
    next_try: float | None
    """When Azure is asked for them again, in seconds since the epoch."""
    problem: str
    """Why Azure cannot be asked, or does not delete what must go; empty: it does."""

    @property
    def missing(self) -> int:
        """How many are wanted that are neither there nor coming."""
        return max(0, self.wanted - len(self.there) - len(self.coming))


def report(workers: Workers, file: Path) -> None:
    """Replaces the file; a full disk does not stop the autoscaler."""
    known = {"time": time.time(), **asdict(workers), "missing": workers.missing}
    if not workers.missing:  # What was wrong earlier is of no interest.
        known |= {"why": "", "next_try": None}
    aside = file.with_name(f".{file.name}.new")
    try:
        aside.write_text(json.dumps(known))
        aside.replace(file)
    except OSError as error:
        logger.warning("%s: %s", file, error)
