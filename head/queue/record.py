"""The head's record of one experiment or script: state.json in the experiment's folder."""

import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin

from ..files import open_file, read_json, replace_json

AT_WORK = ("TRAINING", "RUNNING")
"""An experiment is TRAINING, a script is RUNNING."""
LIVE = ("STARTING", *AT_WORK)
ENDED = ("FINISHED", "FAILED", "STOPPED")
NO_TRIES = {"away_since": 0.0, "away": 0}
"""The fields of a record that no transient error has kept waiting."""
STATES = ("QUEUED", *LIVE, *ENDED)
STATE = "state.json"
STATUS = "status.json"
"""The payload writes it: RunStatus in payload/run/run_status.py."""
ENV_RUNNERS = "env_runners"
"""The number of env runners that the experiment should have now; the payload reads it."""
OUTPUT = "output.log"
SUBMITTED_BY = "submitted-by"
"""Names the submitter. It arrives with the submitted files but is not one of them."""
SAVED_QUEUE, SAVED_OUTPUTS = "queue.json", "experiments"
"""A blob and a folder of the results account: head/saved_queue.py."""


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
    """Experiments of the same priority are served in this order."""
    priority: int = 0
    """Experiments of a higher priority are served first; they stop nothing that trains."""
    started: float | None = None
    ended: float | None = None
    attempts: int = 0
    failures: list[float] = field(default_factory=list)
    """Times of its failures; making room and stops of Ray or the head do not count."""
    failed_at_steps: int = 0
    """Most environment steps at which it has failed."""
    not_before: float = 0.0
    """Time of the next try; 0 unless it failed or something it needs is unavailable."""
    away_since: float = 0.0
    """Since when a registry, Ray, disk space or the like has been unavailable; 0 if none is."""
    away: int = 0
    """How many tries have failed for that reason."""
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
    """Seconds that a script waits for machines in its turn; None for no limit."""
    wish: str = ""
    """Request to the queue while it trains: "stop", "requeue", "replace" or "retry"."""
    now: bool = False
    """It was submitted with --now."""
    up: bool = False
    """Submitted by `pulumi up`, which trains one experiment at a time."""
    submitted_by: str = ""
    """user@host of the laptop; empty for `pulumi up`."""
    algorithm: str = ""
    env: str = ""
    """Both empty for a script."""
    notify: str = ""
    """Whom its end is told to: a command, or $NAME of a secret with a URL or a command."""
    told: str = ""
    """The last end that was told, or that could not be; see notices.py."""
    untold: str = ""
    """Why nobody was told of it."""

    @property
    def turn(self) -> tuple[int, int]:
        """Sorts experiments in the order in which they are served."""
        return -self.priority, self.order

    @property
    def live(self) -> bool:
        return self.state in LIVE

    @property
    def over(self) -> bool:
        return self.state in ENDED

    @property
    def damaged(self) -> bool:
        """Whether its file could not be read, so that nothing else is known of it."""
        return not self.key

    def submitted_again(self, time: float, order: int) -> "Record":
        """Returns what was submitted, without anything of its earlier starts."""
        kept = (
            *("name", "digest", "key", "needs", "script", "machines_timeout_s", "up", "priority"),
            *("submitted_by", "algorithm", "env", "notify"),
        )
        return Record(**{name: getattr(self, name) for name in kept}, submitted=time, order=order)

    def write(self, folder: Path) -> None:
        replace_json(folder / STATE, asdict(self))


def read_record(folder: Path) -> Record | None:
    """Returns the experiment in a folder; None if there is none."""
    try:
        with open_file(folder / STATE) as file:
            values = json.load(file)
        if not isinstance(values, dict):
            raise ValueError("no object")
        # An older or newer queue may have written other fields.
        kinds = {entry.name: entry.type for entry in fields(Record)}
        known = {name: value for name, value in values.items() if name in kinds}
        wrong = [name for name, value in known.items() if not _is_a(kinds[name], value)]
        if wrong or known.get("state") not in STATES:
            raise ValueError(f"{wrong[0] if wrong else 'state'} is wrong")
    except (FileNotFoundError, NotADirectoryError):
        return Record(folder.name, "FAILED", f"{STATE} is missing") if folder.is_dir() else None
    except (OSError, ValueError, RecursionError) as error:
        return Record(folder.name, "FAILED", f"{STATE} cannot be read: {error}")
    return Record(**{**known, "name": folder.name})


def _is_a(kind: Any, value: object) -> bool:
    """Whether a value of JSON is one of a field's type."""
    if isinstance(kind, UnionType):
        return any(_is_a(each, value) for each in get_args(kind))
    plain = get_origin(kind) or kind
    if plain is list:
        (entries,) = get_args(kind)
        return isinstance(value, list) and all(_is_a(entries, entry) for entry in value)
    if plain in (int, float):
        return isinstance(value, (int, plain)) and not isinstance(value, bool)
    return isinstance(value, plain)


def read_status(folder: Path) -> dict[str, Any]:
    """Returns what the payload has written; empty before that."""
    return read_json(folder / STATUS)
