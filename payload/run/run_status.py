"""The state of a run as `--status` writes it: status.json, which the queue and a laptop read."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from payload.atomic_file import replace_text

if TYPE_CHECKING:
    from payload.run.panel import Outlook
    from payload.tracking.report import Report

State = Literal[
    "STARTING", "TRAINING", "RUNNING", "FINISHED", "FAILED", "KILLED", "QUEUED", "STOPPED"
]
"""The last two are states of a cluster's queue, which a payload does not write."""


@dataclass(frozen=True)
class RunStatus:
    """The content of status.json: an object with these keys."""

    state: State
    """TRAINING from the first learner update on, RUNNING a script; FINISHED, FAILED and KILLED are
    MLflow's."""
    run: str
    """The run's folder."""
    reason: str = ""
    """Why it ended."""
    # While it trains, as of its last iteration; None while unknown.
    env_steps: int | None = None
    steps_per_s: float | None = None
    """Environment steps sampled."""
    episode_return: float | None = None
    """Mean return of the last 100 episodes."""
    best_return: float | None = None
    """The best of these means so far."""
    seconds_left: float | None = None
    """Seconds until the run ends at the latest, at the speed so far; None without a limit."""
    num_env_runners: int | None = None
    """Env runners alive."""
    mlflow_run: str | None = None
    """The id of the MLflow run."""

    def after(self, report: Report, outlook: Outlook | None, best_return: float) -> RunStatus:
        """Returns the status after an iteration."""
        return replace(
            self,
            env_steps=report.env_steps,
            steps_per_s=_finite(report.sampled_per_s),
            episode_return=_finite(report.return_mean),
            best_return=_finite(best_return),
            seconds_left=None if outlook is None else _finite(outlook.latest_end_s),
            num_env_runners=report.env_runners,
        )

    def ended(self, state: State, reason: str) -> RunStatus:
        """Returns the status of a run that is over, with its last figures."""
        return replace(
            self, state=state, reason=reason, steps_per_s=None, seconds_left=None, num_env_runners=0
        )

    def write(self, path: Path | None) -> None:
        """Replaces the file, if there is one: at any moment it holds one state or the next."""
        if path is not None:
            with suppress(OSError):  # A full disk must not end a run.
                replace_text(path, json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: Path) -> RunStatus:
        return cls(**json.loads(path.read_text()))


def _finite(value: float) -> float | None:
    """Returns None for a value that is not finite: JSON has no NaN."""
    return value if math.isfinite(value) else None
