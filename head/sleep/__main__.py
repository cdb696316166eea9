"""One run: updates the cost, checks whether the cluster can sleep, and puts it to sleep.

cluster-sleep.timer starts it every minute. Where it does not work for hours, the watchdog
deallocates the head: infra/boot/files/head/usr/local/lib/volley/watchdog.py.
"""

import sys
import time
from dataclasses import dataclass, replace

from ..cluster_settings import ClusterSettings, read_settings
from ..files import read_json, replace_json
from ..machine import Moment, present_moment
from ..paths import CHECKED, SLEEP_REQUEST
from ..sleep_record import SleepRecord, record_of_this_boot
from .idle import Need, need, unfinished
from .lease import renew
from .limits import GRACE_S, Limit, limits, tag_runs, warning
from .spending import Cost, update
from .steps import go

REQUEST_S = 3600.0
"""A person's request is retried for this long."""


@dataclass(frozen=True)
class Reason:
    """Why the cluster goes to sleep."""

    text: str
    whatever_runs: bool = False
    """Whether experiments are interrupted; they continue after the next start."""
    asked: float = 0
    """When a person has asked for it."""


def main() -> int:
    settings = read_settings()
    if settings is None:
        return 0
    now = present_moment()
    cost = update(settings.prices, now)
    if settings.scaling == "cpu":
        worked(cost)
        return 0  # Azure's own rules scale the workers: the head must not change them.
    record = record_of_this_boot() or SleepRecord(now.boot, now.booted)
    if record.going:
        go(settings, record)
        return 0
    renew(settings)
    found = limits(settings, now.up_s, cost.so_far)
    needed = need()
    record = looked(settings, record, now, cost, needed)
    record.write()
    reason = why(settings, record, now, found, needed)
    if reason is None and needed.certain:
        replace(record, problem="", next_try=None, failures=0).write()
        worked(cost)
    elif reason and (now.time >= (record.next_try or 0) or reason.asked > record.tried):
        print(f"going to sleep: {reason.text}", flush=True)
        go(settings, replace(record, why=reason.text, whatever_runs=reason.whatever_runs))
    return 0


def worked(cost: Cost) -> None:
    """Records for the watchdog that a check worked.

    A check that cannot tell whether the cluster is needed, or that fails to sleep, has not worked.
    """
    CHECKED.parent.mkdir(parents=True, exist_ok=True)
    state = {"checked": time.monotonic(), "so_far": cost.so_far, "per_hour": cost.per_hour}
    replace_json(CHECKED, state)


def looked(
    settings: ClusterSettings, record: SleepRecord, now: Moment, cost: Cost, needed: Need
) -> SleepRecord:
    """Returns the record with the current state."""
    since: float | None = min(record.idle_since or now.time, now.time)
    # After a failure Ray has just been restarted, which does not mean that it is needed.
    keeps = record.failures and record.idle_since and not needed.certain
    since = since if keeps or not needed.who else None
    minutes = settings.sleep_after_minutes
    ends = [since + 60 * minutes] if since is not None and minutes else []
    ends += [now.booted + 3600 * settings.max_hours] if settings.max_hours else []
    if settings.budget:
        hours_left = max(0.0, settings.budget - cost.so_far) / cost.per_hour
        ends += [max(now.time + 3600 * hours_left, now.booted + GRACE_S)]
    near = warning(limits(settings, now.up_s, cost.so_far))
    warned = tag_runs(near, record.warned) if near else []
    return replace(
        record, idle_since=since, sleeps_at=min(ends, default=None), warning=near, warned=warned
    )


def why(
    settings: ClusterSettings, record: SleepRecord, now: Moment, found: list[Limit], needed: Need
) -> Reason | None:
    """Returns why the cluster should sleep now; None if it should not."""
    request = read_json(SLEEP_REQUEST)
    asked = float(request.get("time", 0)) + now.since_clock_of(request.get("booted", 0))
    valid = request.get("boot") == now.boot and 0 <= now.time - asked < REQUEST_S
    if valid and request.get("now"):
        return Reason("volley sleep --now", whatever_runs=True, asked=asked)
    for limit in found:
        if limit.reached:
            return Reason(str(limit), whatever_runs=True)
    if valid and not unfinished():
        return Reason("volley sleep", asked=asked)
    SLEEP_REQUEST.unlink(missing_ok=True)
    if needed.who or record.idle_since is None or not settings.sleep_after_minutes:
        return None
    idle_s = now.time - record.idle_since
    if idle_s >= 60 * settings.sleep_after_minutes:
        return Reason(f"idle for {idle_s / 60:.0f} min")
    return None


if __name__ == "__main__":
    sys.exit(main())
