"""What `volley status` says of the workers and of the cluster's sleep, a line for each fact.

All times in volley-head's answer are seconds since the epoch, by the head's clock. An older head
says less; nothing is shown of what is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.text import Text

from volley.tables import duration, printable

STALE_S = 30.0
"""What is known of the cluster is written every few seconds; older than this, it may be wrong."""


def as_of(time: float | None, now: float) -> str:
    """Returns " (as of 5 min ago)" for what was written too long ago."""
    if time is None or now - time <= STALE_S:
        return ""
    return f" (as of {duration(now - time)} ago)"


def cluster_lines(answer: Mapping[str, Any]) -> list[Text]:
    """Returns the lines of the workers, then those of the sleep."""
    now = float(answer["time"])
    workers, sleep = answer.get("workers") or {}, answer.get("sleep") or {}
    return [*_workers(workers, now), *_sleep(sleep, now)]


def _workers(workers: Mapping[str, Any], now: float) -> Iterator[Text]:
    if workers.get("wanted") is not None:
        counts = {key: len(workers.get(key) or []) for key in ("there", "coming", "leaving")}
        parts = [f"{workers['wanted']} wanted", f"{counts['there']} there"]
        parts += [f"{counts[key]} {key}" for key in ("coming", "leaving") if counts[key]]
        if missing := workers.get("missing"):
            why = f": {workers['why']}" if workers.get("why") else ""
            parts.append(f"{missing} missing{why}{_next_try(workers, now)}")
        line = f"Workers: {', '.join(parts)}{as_of(workers.get('time'), now)}"
        yield Text(printable(line))
    if problem := workers.get("problem"):
        yield Text(printable(f"Workers: {problem}"), style="red")


def _sleep(sleep: Mapping[str, Any], now: float) -> Iterator[Text]:
    since, until = sleep.get("idle_since"), sleep.get("sleeps_at")
    idle = f"Idle for {duration(max(0.0, now - since))}" if since is not None else ""
    sleeps = f"sleeps in {duration(max(0.0, until - now))}" if until is not None else ""
    if sleep.get("going"):
        yield Text("The cluster is falling asleep. Next: volley start wakes it up", style="yellow")
    elif idle or sleeps:
        line = "; ".join(filter(None, (idle, sleeps)))
        yield Text(line[0].upper() + line[1:])
    if warning := sleep.get("warning"):
        yield Text(printable(warning), style="yellow")
    if problem := sleep.get("problem"):
        line = f"It could not fall asleep: {problem}{_next_try(sleep, now)}"
        yield Text(printable(line), style="red")


def _next_try(of: Mapping[str, Any], now: float) -> str:
    if of.get("next_try") is None:
        return ""
    return f"; next try in {duration(max(0.0, of['next_try'] - now))}"
