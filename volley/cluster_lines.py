"""The lines of `volley status` about the workers and the cluster's sleep.

All times in volley-head's answer are seconds since the epoch, by the head's clock. An older head
sends fewer fields; there is no line for a missing one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.text import Text

from volley.errors import as_typed
from volley.tables import duration, printable

STALE_S = 30.0
"""The head writes the cluster's state every few seconds; an older state may be wrong."""


def as_of(time: float | None, now: float) -> str:
    """Returns " (as of 5 min ago)" for an old state."""
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
        there, coming, leaving = (
            len(workers.get(key) or []) for key in ("there", "coming", "leaving")
        )
        parts = [f"{there} of {workers['wanted']} running"]
        parts += [f"{coming} starting"] if coming else []
        parts += [f"{leaving} leaving"] if leaving else []
        line = f"Workers: {', '.join(parts)}{as_of(workers.get('time'), now)}"
        if missing := workers.get("missing"):
            why = workers.get("why") or f"{missing} missing"
            line += f". {why}{_next_try(workers, now)}"
        yield Text(printable(line))
    if problem := workers.get("problem"):
        yield Text(printable(f"Workers: {problem}"), style="red")


def _sleep(sleep: Mapping[str, Any], now: float) -> Iterator[Text]:
    since, until = sleep.get("idle_since"), sleep.get("sleeps_at")
    idle = f"Idle for {duration(max(0.0, now - since))}" if since is not None else ""
    sleeps = f"sleeps in {duration(max(0.0, until - now))}" if until is not None else ""
    if sleep.get("going"):
        line = as_typed("The cluster is falling asleep. To wake it up: volley start")
        yield Text(line, style="yellow")
    elif idle or sleeps:
        line = "; ".join(filter(None, (idle, sleeps)))
        yield Text(line[0].upper() + line[1:])
    if warning := sleep.get("warning"):
        yield Text(printable(warning), style="yellow")
    if problem := sleep.get("problem"):
        line = f"The cluster could not fall asleep: {problem}{_next_try(sleep, now)}"
        yield Text(printable(line), style="red")


def _next_try(state: Mapping[str, Any], now: float) -> str:
    if state.get("next_try") is None:
        return ""
    return f"; retry in {duration(max(0.0, state['next_try'] - now))}"
