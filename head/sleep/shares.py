"""Cost by experiment: what the machines cost, divided by the CPUs that each experiment holds.

Each run of head.sleep divides the time since the one before. An experiment holds the CPUs of its
env runners, learners and driver while it starts and trains. Its share of a machine's price is its
share of all CPUs that Ray has: GPUs are not weighed. The rest is nobody's: idle CPUs, the boot, the
time asleep, and Ray programs that no experiment has started.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..queue.record import Record
from ..room import Needs

HOUR_S = 3600.0


@dataclass(frozen=True)
class Share:
    """What one person's experiment has cost so far on this head."""

    key: str
    """Of its runs: its name, and a hash of what was submitted."""
    name: str
    submitted_by: str
    dollars: float = 0.0
    cpu_hours: float = 0.0


@dataclass(frozen=True)
class Interval:
    """A time in which the machines were up."""

    begin: float
    end: float
    """Seconds since the epoch."""
    dollars: float
    cpus: int
    """Those that Ray has."""


def divided(before: Any, interval: Interval, records: Sequence[Record]) -> list[Share]:
    """Returns the shares in `before`, a list of JSON, with those of an interval added."""
    shares = {(share.key, share.submitted_by): share for share in read_shares(before)}
    seconds = {record.key: held_cpus(record) * _held_s(record, interval) for record in records}
    length = interval.end - interval.begin
    # Nodes may have gone within it: nobody pays for more than there was.
    whole = max(interval.cpus * length, sum(seconds.values()))
    for record in records:
        if not (held := seconds[record.key]):
            continue
        share = shares.get((record.key, record.submitted_by))
        old = share or Share(record.key, record.name, record.submitted_by)
        shares[old.key, old.submitted_by] = Share(
            old.key,
            old.name,
            old.submitted_by,
            old.dollars + interval.dollars * held / whole,
            old.cpu_hours + held / HOUR_S,
        )
    return list(shares.values())


def as_json(shares: Sequence[Share]) -> list[dict[str, Any]]:
    return [asdict(share) for share in shares]


def read_shares(values: Any) -> list[Share]:
    """Returns the shares of a list of JSON; none of what experiments' code has damaged."""
    entries = values if isinstance(values, list) else []
    return [share for entry in entries if (share := _share(entry)) is not None]


def dollars_by_key(cost: Mapping[str, Any]) -> dict[str, float]:
    """Returns what each experiment's runs have cost so far, of the content of cost.json."""
    dollars: dict[str, float] = {}
    for share in read_shares(cost.get("shares")):
        dollars[share.key] = round(dollars.get(share.key, 0.0) + share.dollars, 4)
    return dollars


def held_cpus(record: Record) -> int:
    """Returns the CPUs of an experiment's env runners, learners and driver."""
    try:
        needs = Needs(**record.needs)
    except TypeError:  # Another version has written it.
        return 0
    env_runners = (record.num_env_runners or 0) + needs.evaluation_env_runners
    # A driver shares the CPU of a learner if there is one: Room.take_driver.
    driver = needs.least == 0 or needs.cpu_learners == 0
    return env_runners * needs.cpus_per_env_runner + needs.cpu_learners + driver


def _held_s(record: Record, interval: Interval) -> float:
    """Returns for how many seconds of an interval it has held its CPUs."""
    # A retry that is yet to come has no job.
    if record.started is None or not (record.over or (record.live and record.job)):
        return 0.0
    end = min(interval.end, (record.ended or 0.0) if record.over else interval.end)
    return max(0.0, end - max(interval.begin, record.started))


def _share(entry: Any) -> Share | None:
    if not isinstance(entry, Mapping):
        return None
    words = [entry.get(key) for key in ("key", "name", "submitted_by")]
    numbers = [entry.get(key) for key in ("dollars", "cpu_hours")]
    if not all(isinstance(word, str) for word in words):
        return None
    if not all(isinstance(n, (int, float)) and not isinstance(n, bool) for n in numbers):
        return None
    return Share(*map(str, words), *map(float, numbers))  # type: ignore[arg-type]
