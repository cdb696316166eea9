"""`volley status`: machines, experiments, the last save and the cost."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from head.queue.record import ENDED, LIVE
from payload.errors import UserError
from volley.cluster_lines import as_of, cluster_lines
from volley.cost import cost_so_far
from volley.errors import as_typed
from volley.head import Head
from volley.private import digest, remember, remembered
from volley.stack import Outputs, Stack
from volley.tables import console, duration, number, printable, show
from volley.unreachable import remember_sleep

WATCH_S = 2.0
SHOWN = 10
"""Queued experiments, and ended ones, that are shown without --all."""
COLORS = {
    "TRAINING": "green",
    "STARTING": "yellow",
    "FAILED": "red",
    "FINISHED": "blue",
}
WISHES = {
    "stop": "writing its checkpoint, then stops",
    "requeue": "writing its checkpoint, then makes room",
    "replace": "writing its checkpoint, then is replaced",
}
"""Requests to a training experiment, as people read them."""


def status(stack: Stack, watch: bool, as_json: bool, all_experiments: bool = False) -> int:
    """Shows the cluster once, or every two seconds until Ctrl-C."""
    if watch and as_json:
        raise UserError("--watch and --json cannot be combined")
    head = Head(stack)
    if not watch:
        answer = _ask(head, stack)
        show(as_json, answer, status_page(answer, head.outputs, all_experiments))
        return 0
    from rich.live import Live

    with Live(console=console(), auto_refresh=False, screen=False) as live:
        while True:
            page = status_page(_ask(head, stack), head.outputs, all_experiments)
            live.update(page, refresh=True)
            time.sleep(WATCH_S)


def status_page(
    answer: Mapping[str, Any], outputs: Outputs, all_experiments: bool = False
) -> RenderableType:
    """Returns volley-head's answer as people read it.

    Args:
        all_experiments: Also those far back in the queue, and those that ended long ago.
    """
    spent = cost_so_far(answer, outputs)
    saved = answer.get("saved", {}).get("time")
    ago = duration(max(0.0, answer["time"] - saved)) if saved else ""
    lines: list[RenderableType] = [
        *cluster_lines(answer),
        spent.line(),
        f"Results were saved {ago} ago" if saved else "Nothing has been saved yet",
    ]
    if memory := answer.get("head", {}).get("memory_bytes"):
        lines.append(f"The queue's services use {memory / 2**20:,.0f} MiB on the head")
    shown: list[RenderableType] = []
    if answer["nodes"]:
        shown.append(_nodes(answer["nodes"], as_of(answer.get("nodes_time"), answer["time"])))
    else:
        lines.append(
            as_typed(
                "Ray has not reported any machines yet; the head may still be starting. "
                "Next: volley logs --unit experiments"
            )
        )
    if answer["experiments"]:
        every = answer["experiments"]
        experiments, left_out = (every, "") if all_experiments else _shortened(every)
        shown += [_experiments(experiments), *filter(None, [left_out])]
    else:
        lines.append(as_typed("No experiments. Next: volley submit experiments/pong.yaml"))
    return Group(*shown, *lines)


def known_names(stack: Stack) -> list[str]:
    """Returns the experiments in the last status, for a shell's completion."""
    return list(remembered(_names(stack)).get("names", []))


def _ask(head: Head, stack: Stack) -> dict[str, Any]:
    answer = head.ask("status")
    remember(_names(stack), {"names": [record["name"] for record in answer["experiments"]]})
    sleeps_at = (answer.get("sleep") or {}).get("sleeps_at")
    in_s = None if sleeps_at is None else sleeps_at - answer["time"]
    remember_sleep(head.outputs, None if in_s is None else time.time() + in_s)
    return answer


def _names(stack: Stack) -> str:
    return f"names-{digest(stack.name or '')}"


def _nodes(nodes: list[Mapping[str, Any]], seen: str) -> Table:
    # Ray names a node by its address.
    table = Table("node", "role", f"state{seen}", "CPUs", "GPUs")
    for node in nodes:
        words = [str(node.get(key, "")) for key in ("name", "role", "state")]
        table.add_row(*words, number(node.get("cpus")), number(node.get("gpus")))
    return table


def _shortened(
    experiments: list[Mapping[str, Any]],
) -> tuple[list[Mapping[str, Any]], str]:
    """Returns those to show, in their order, and a line about the others."""
    queued = [record for record in experiments if record["state"] == "QUEUED"]
    queued.sort(key=lambda record: record.get("position") or 0)
    ended = [record for record in experiments if record["state"] in ENDED]
    hidden = {"queued": queued[SHOWN:], "ended": ended[:-SHOWN]}
    names = {record["name"] for records in hidden.values() for record in records}
    counts = ", ".join(f"{len(records)} {word}" for word, records in hidden.items() if records)
    line = as_typed(f"Not shown: {counts}. Next: volley status --all") if counts else ""
    return [record for record in experiments if record["name"] not in names], line


def _experiments(experiments: list[Mapping[str, Any]]) -> Table:
    table = Table("experiment", "state", "return", "steps", "steps/s", "env runners", "left", "why")
    for record in experiments:
        run = record.get("status") or {}
        state = str(record["state"])
        place = f" ({record['position']})" if state == "QUEUED" and record.get("position") else ""
        left = run.get("seconds_left")
        table.add_row(
            str(record["name"]),
            Text(f"{state}{place}", style=COLORS.get(state, "")),
            number(run.get("episode_return")),
            number(run.get("env_steps")),
            number(run.get("steps_per_s")),
            number(run.get("num_env_runners")),
            duration(left) if left is not None else "",
            printable(_why(record, run)),
        )
    return table


def _why(experiment: Mapping[str, Any], run: Mapping[str, Any]) -> str:
    live = experiment["state"] in LIVE
    wish = WISHES.get(experiment.get("wish", "")) if live else None
    return wish or experiment.get("reason") or run.get("reason") or ""
