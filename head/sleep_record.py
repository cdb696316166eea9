"""sleep.json: the state of the cluster's sleep, for the next run of head.sleep and for status."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, replace

from .autoscaler.growth import LONGEST_S, SHORTEST_S
from .files import read_json, replace_json
from .machine import present_moment
from .paths import SLEEP

TIMES = ("idle_since", "sleeps_at", "next_try", "asked", "tried")


@dataclass(frozen=True)
class SleepRecord:
    """Times are seconds since the epoch. The record of another boot does not count."""

    boot: str
    booted: float = 0
    """When this boot was, by the clock that the other times are from."""
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
    """Returns the record in sleep.json; None if it was written in an earlier boot or never.

    Its times are those of the present clock, which may have been set meanwhile.
    """
    values, names = read_json(SLEEP), {entry.name for entry in fields(SleepRecord)}
    now = present_moment()
    if values.get("boot") != now.boot:
        return None
    record = SleepRecord(**{name: value for name, value in values.items() if name in names})
    ahead = now.since_clock_of(record.booted)
    times = {name: getattr(record, name) for name in TIMES}
    moved = {name: time + ahead for name, time in times.items() if time}
    return replace(record, booted=now.booted, **moved)


def is_going_to_sleep() -> bool:
    record = record_of_this_boot()
    return record is not None and record.going
