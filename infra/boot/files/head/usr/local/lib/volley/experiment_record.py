"""What the head knows of one experiment: state.json in the experiment's folder.

Needs the standard library only.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

LIVE = ("STARTING", "TRAINING")
ENDED = ("FINISHED", "FAILED", "STOPPED")
STATE = "state.json"
STATUS = "status.json"
"""The payload writes it: RunStatus in payload/run/run_status.py."""
ENV_RUNNERS = "env_runners"
"""The number of env runners that the experiment is to have now; the payload reads it."""
OUTPUT = "output.log"


@dataclass(frozen=True)
class Record:
    """What state.json holds. Times are seconds since the epoch."""

    name: str
    state: str = "QUEUED"
    """QUEUED, STARTING, TRAINING, FINISHED, FAILED or STOPPED."""
    reason: str = ""
    """Why it waits, failed or ended."""
    submitted: float = 0.0
    order: int = 0
    """Experiments are served in this order."""
    started: float | None = None
    ended: float | None = None
    attempts: int = 0
    starts: list[float] = field(default_factory=list)
    """Within the last hour."""
    not_before: float = 0.0
    """When it is tried again; 0 unless it has failed."""
    job: str = ""
    """Ray's submission id."""
    num_env_runners: int | None = None
    """That it is to have now."""
    digest: str = ""
    """Of all that was submitted."""
    key: str = ""
    """Of its runs: another experiment of the same name has other runs."""
    needs: dict[str, Any] = field(default_factory=dict)
    """See Needs in sharing.py."""
    wish: str = ""
    """What the queue is to do with one that trains: "stop", "requeue" or "replace"."""
    now: bool = False
    """It was submitted with --now."""
    up: bool = False
    """`pulumi up` has submitted it; it trains one experiment at a time."""

    @property
    def live(self) -> bool:
        return self.state in LIVE

    @property
    def over(self) -> bool:
        return self.state in ENDED

    def write(self, folder: Path) -> None:
        replace_text(folder / STATE, json.dumps(asdict(self)))


def read_record(folder: Path) -> Record | None:
    """Returns the experiment in a folder; None if there is none."""
    try:
        values = json.loads((folder / STATE).read_text())
    except FileNotFoundError:
        return None
    except ValueError:
        return Record(folder.name, "FAILED", f"{STATE} cannot be read")
    known = {one.name for one in fields(Record)}
    return Record(**{key: value for key, value in values.items() if key in known})


def read_status(folder: Path) -> dict[str, Any] | None:
    """Returns what the payload has written; None before it has."""
    try:
        found: dict[str, Any] = json.loads((folder / STATUS).read_text())
    except (FileNotFoundError, ValueError):
        return None
    return found


def replace_text(path: Path, text: str) -> None:
    """Replaces a file: at any moment the old content or the new one is there."""
    aside = path.with_name(f".{path.name}")
    aside.write_text(text)
    aside.replace(path)
