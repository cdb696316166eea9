"""The autoscaler's view of the workers, in a file for `volley status` and for sleep."""

from __future__ import annotations

import logging
import time
from dataclasses import asdict, dataclass

from ..files import replace_json
from ..paths import WORKERS

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Workers:
    """The workers; VMs by their names."""

    wanted: int
    there: list[str]
    """Workers that have joined Ray."""
    coming: list[str]
    leaving: list[str]
    why: str
    """Azure's reason why some are missing; empty: nothing is wrong."""
    next_try: float | None
    """The time of the next request to Azure, in seconds since the epoch."""
    problem: str
    """Why Azure does not answer, or does not delete a worker; empty: it does."""

    @property
    def missing(self) -> int:
        """How many wanted workers are neither running nor coming."""
        return max(0, self.wanted - len(self.there) - len(self.coming))


def write_report(workers: Workers) -> None:
    """Replaces the file; a full disk does not stop the autoscaler."""
    values = {"time": time.time(), **asdict(workers), "missing": workers.missing}
    if not workers.missing:  # Earlier problems are over.
        values |= {"why": "", "next_try": None}
    try:
        replace_json(WORKERS, values)
    except OSError as error:
        logger.warning("%s: %s", WORKERS, error)
