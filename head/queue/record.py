"""The head's record of one experiment or script: state.json in the experiment's folder."""

import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from ..files import read_json, replace_json

AT_WORK = ("TRAINING", "RUNNING")
"""An experiment is TRAINING, a script is RUNNING."""
LIVE = ("STARTING", *AT_WORK)
ENDED = ("FINISHED", "FAILED", "STOPPED")
STATE = "state.json"
STATUS = "status.json"
"""The payload writes it: RunStatus in payload/run/run_status.py."""
ENV_RUNNERS = "env_runners"
"""The number of env runners that the experiment should have now; the payload reads it."""
OUTPUT = "output.log"


@dataclass(frozen=True)
class Record:
    """The content of state.json. Times are seconds since the epoch."""

    name: str
    state: str = "QUEUED"
    """QUEUED, or one of LIVE or ENDED."""
    reason: str = ""
    """Why it waits, failed or ended."""
    submitted: float = 0.0
    order: int = 0
    """Experiments are served in this order."""
    started: float | None = None
    ended: float | None = None
    attempts: int = 0
    starts: list[float] = field(default_factory=list)
    """The starts within the last hour."""
    not_before: float = 0.0
    """Time of the next try; 0 unless it has failed."""
    job: str = ""
    """Ray's submission id."""
    num_env_runners: int | None = None
    """Its present share."""
    digest: str = ""
    """Hash of everything that was submitted."""
    key: str = ""
    """Its runs belong to this key: another experiment of the same name has other runs."""
    needs: dict[str, Any] = field(default_factory=dict)
    """Needs of payload/room.py, as JSON."""
    script: bool = False
    """Whether it is a script, which has no env runners."""
    machines_timeout_s: float | None = None
    """Seconds that a script waits for machines in its turn; None for ever."""
    wish: str = ""
    """Request to the queue while it trains: "stop", "requeue" or "replace"."""
    now: bool = False
    """It was submitted with --now."""
    up: bool = False
    """Submitted by `pulumi up`, which trains one experiment at a time."""

    @property
    def live(self) -> bool:
        return self.state in LIVE

    @property
    def over(self) -> bool:
        return self.state in ENDED

    def submitted_again(self, time: float, order: int) -> "Record":
        """Returns what was submitted, without anything of its earlier starts."""
        kept = ("name", "digest", "key", "needs", "script", "machines_timeout_s", "up")
        return Record(**{name: getattr(self, name) for name in kept}, submitted=time, order=order)

    def write(self, folder: Path) -> None:
        replace_json(folder / STATE, asdict(self))


def read_record(folder: Path) -> Record | None:
    """Returns the experiment in a folder; None if there is none."""
    try:
        values = json.loads((folder / STATE).read_text())
    except FileNotFoundError:
        return None
    except ValueError:
        return Record(folder.name, "FAILED", f"{STATE} cannot be read")
    names = {entry.name for entry in fields(Record)}
    return Record(**{name: value for name, value in values.items() if name in names})


def read_status(folder: Path) -> dict[str, Any]:
    """Returns what the payload has written; empty before that."""
    return read_json(folder / STATUS)
