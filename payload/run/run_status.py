"""The state of a run as a file, for what started it: a systemd unit, a scheduler, a script."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from payload.files import replace_text

State = Literal["STARTING", "TRAINING", "FINISHED", "FAILED", "KILLED"]


@dataclass(frozen=True)
class RunStatus:
    """What status.json holds, an object with these keys."""

    state: State
    """TRAINING from the first learner update on; the last three as in MLflow."""
    run: str
    """The run's folder."""
    reason: str = ""
    """Why it ended."""

    def write(self, path: Path) -> None:
        """Replaces the file: at any moment it holds one state or the next."""
        replace_text(path, json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: Path) -> RunStatus:
        return cls(**json.loads(path.read_text()))
