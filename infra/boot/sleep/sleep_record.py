"""sleep.json: what one run leaves to the next, and to `volley status`."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, replace

from places import SLEEP

from ..autoscaler.growth import LONGEST_S, SHORTEST_S
from . import files


@dataclass(frozen=True)
class SleepRecord:
    """Times are seconds since the epoch. A record of another boot says nothing."""

    boot: str
    idle_since: float | None = None
    sleeps_at: float | None = None
    """If nobody needs the cluster until then."""
    going: bool = False
    """Whether the cluster is going to sleep: nothing can be submitted."""
    warning: str = ""
    """Which limits are near."""
    problem: str = ""
    """Why it could not go to sleep."""
    next_try: float | None = None
    step: str = ""
    """What it is doing as it goes to sleep, or "waking"."""
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
        files.replace(SLEEP, asdict(self))

    def after_failure(self, problem: str, now: float, at_least_s: float) -> SleepRecord:
        """Returns the record after a failure; each time the pause is twice as long."""
        pause = max(at_least_s, min(SHORTEST_S * 2 ** min(self.failures, 10), LONGEST_S))
        failures, until = self.failures + 1, now + pause
        return replace(self, problem=problem, next_try=until, failures=failures, tried=now)


def read_sleep_record(boot: str) -> SleepRecord:
    """Returns the record of this boot, a new one if there is none."""
    values, known = files.read(SLEEP), {one.name for one in fields(SleepRecord)}
    if values.get("boot") != boot:
        return SleepRecord(boot)
    return SleepRecord(**{key: value for key, value in values.items() if key in known})
