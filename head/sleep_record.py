"""sleep.json: the state of the cluster's sleep, for the next run of head.sleep and for status."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, replace

from .autoscaler.growth import LONGEST_S, SHORTEST_S
from .files import read_json, replace_json
from .machine import boot_id
from .paths import SLEEP


@dataclass(frozen=True)
class SleepRecord:
    """Times are seconds since the epoch. The record of another boot does not count."""

    boot: str
    idle_since: float | None = None
    sleeps_at: float | None = None
    """Unless somebody needs the cluster before."""
    going: bool = False
    """Whether the cluster is going to sleep: nothing can be submitted."""
    warning: str = ""
    """Which limits are near."""
    problem: str = ""
    """Why it could not go to sleep."""
    next_try: float | None = None
    step: str = ""
    """The current step on the way to sleep, or "waking"."""
    why: str = ""
    """Why it goes to sleep."""
    whatever_runs: bool = False
    """Whether experiments are interrupted."""
    asked: float | None = None
    """When Azure was asked to deallocate the head."""
    tried: float = 0
    failures: int = 0
    warned: list[str] = field(default_factory=list)
    """MLflow runs that have the warning."""

    def write(self) -> None:
        replace_json(SLEEP, asdict(self))

    def after_failure(self, problem: str, now: float, at_least_s: float) -> SleepRecord:
        """Returns the record after a failure; each failure doubles the pause."""
        pause = max(at_least_s, min(SHORTEST_S * 2 ** min(self.failures, 10), LONGEST_S))
        failures, until = self.failures + 1, now + pause
        return replace(self, problem=problem, next_try=until, failures=failures, tried=now)


def record_of_this_boot() -> SleepRecord | None:
    """Returns the record in sleep.json; None if it was written in an earlier boot or never."""
    values, names = read_json(SLEEP), {entry.name for entry in fields(SleepRecord)}
    if values.get("boot") != boot_id():
        return None
    return SleepRecord(**{name: value for name, value in values.items() if name in names})


def is_going_to_sleep() -> bool:
    record = record_of_this_boot()
    return record is not None and record.going
