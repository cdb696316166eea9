"""The table of a cluster's experiments, and why each of them waits or has ended."""

from collections.abc import Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from head.queue.record import ENDED, LIVE
from payload.errors import printable
from volley.errors import as_typed
from volley.private import digest, remember, remembered
from volley.saved_results import SAVED
from volley.stack import Stack
from volley.tables import dollars, duration, number

SHOWN = 10
"""Queued experiments, and ended ones, that are shown without --all."""
COLORS = {
    "TRAINING": "green",
    "RUNNING": "green",
    "STARTING": "yellow",
    "FAILED": "red",
    "FINISHED": "blue",
}
WISHES = {
    "stop": "writing its checkpoint, then stops",
    "requeue": "writing its checkpoint, then back to the queue",
    "replace": "writing its checkpoint, then is replaced",
    "retry": "stopping, then starts again",
}
"""Requests to a training experiment, as people read them."""


def experiments_table(experiments: list[Mapping[str, Any]], now: float) -> Table:
    table = Table("experiment", "state", "return", "steps", "steps/s", "env runners", "left", "why")
    has_cost = any(record.get("cost") is not None for record in experiments)
    if has_cost:
        table.add_column("US dollars")
    for record in experiments:
        run = record.get("status") or {}
        state = str(record["state"])
        place = _place(record) if state == "QUEUED" else ""
        left = run.get("seconds_left")
        table.add_row(
            Text.assemble(
                str(record["name"]), (" (script)" if record.get("script") else "", "dim")
            ),
            Text(f"{state}{place}", style=COLORS.get(state, "")),
            number(run.get("episode_return")),
            number(run.get("env_steps")),
            number(run.get("steps_per_s")),
            number(run.get("num_env_runners")),
            duration(left) if left is not None else "",
            why(record, run) + _next_try_of(record, now),
            *([dollars(record.get("cost"))] if has_cost else []),
        )
    return table


def shortened(experiments: list[Mapping[str, Any]]) -> tuple[list[Mapping[str, Any]], str]:
    """Returns those to show, in their order, and a line about the others."""
    queued = [record for record in experiments if record["state"] == "QUEUED"]
    queued.sort(key=lambda record: record.get("position") or 0)
    ended = [record for record in experiments if record["state"] in (*ENDED, SAVED)]
    hidden = {"queued": queued[SHOWN:], "ended": ended[:-SHOWN]}
    names = {record["name"] for records in hidden.values() for record in records}
    counts = ", ".join(f"{len(records)} {word}" for word, records in hidden.items() if records)
    line = as_typed(f"Not shown: {counts}. Next: volley status --all") if counts else ""
    return [record for record in experiments if record["name"] not in names], line


def why(experiment: Mapping[str, Any], run: Mapping[str, Any]) -> str:
    """Returns why an experiment waits, ends or has ended."""
    live = experiment["state"] in LIVE
    wish = WISHES.get(experiment.get("wish", "")) if live else None
    if wish and experiment.get("script"):
        wish = wish.replace("writing its checkpoint", "ending")
    reason = wish or experiment.get("reason") or run.get("reason") or ""
    untold = experiment.get("untold") if experiment["state"] in ENDED else ""
    return f"{reason}; nobody was notified: {untold}" if untold else reason


def next_try(state: Mapping[str, Any], now: float) -> str:
    if state.get("next_try") is None:
        return ""
    return f"; retry in {duration(max(0.0, state['next_try'] - now))}"


def _place(record: Mapping[str, Any]) -> str:
    """Returns " (2, priority 5)"."""
    priority = f"priority {record['priority']}" if record.get("priority") else ""
    words = ", ".join(filter(None, (str(record.get("position") or ""), priority)))
    return f" ({words})" if words else ""


def _next_try_of(experiment: Mapping[str, Any], now: float) -> str:
    """Returns when an experiment is tried again; how often if what it needs is away."""
    time = experiment.get("not_before") or 0.0
    if time <= now or experiment["state"] not in LIVE:
        return ""
    tries = experiment.get("away") or 0
    counted = f" (try {tries + 1})" if tries else ""
    return next_try({"next_try": time}, now) + counted


def known_names(stack: Stack) -> list[str]:
    """Returns the experiments in the last status, for a shell's completion."""
    return [printable(str(name)) for name in remembered(_names(stack)).get("names", [])]


def remember_names(stack: Stack, answer: Mapping[str, Any]) -> None:
    """Remembers the experiments of a status, for `known_names`."""
    remember(_names(stack), {"names": [record["name"] for record in answer["experiments"]]})


def _names(stack: Stack) -> str:
    return f"names-{digest(stack.name or '')}"
