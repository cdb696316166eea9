"""`volley status`: the cluster, its experiments, what is saved, what it costs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from payload.errors import UserError
from volley.change import UNDER_WAY
from volley.cluster_lines import as_of, cluster_lines
from volley.cost import cost_so_far
from volley.head import Head
from volley.private import digest, remember, remembered
from volley.stack import Outputs, Stack
from volley.tables import console, duration, number, printable, show

WATCH_S = 2.0
SHOWN = 10
"""So many queued and so many ended experiments are shown without --all."""
COLORS = {
    "TRAINING": "green",
    "STARTING": "yellow",
    "FAILED": "red",
    "FINISHED": "blue",
}
WISHES = {
    "stop": "writes its checkpoint and stops",
    "requeue": "writes its checkpoint and makes room",
    "replace": "writes its checkpoint and is replaced",
}
"""What an experiment that trains was asked to do."""


def status(stack: Stack, watch: bool, as_json: bool, all_experiments: bool = False) -> int:
    """Shows the cluster once, or every two seconds until Ctrl-C."""
    if watch and as_json:
        raise UserError("--watch and --json: give one of the two")
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
    """Returns what a person sees of volley-head's answer.

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
        lines.append("The queue has seen no nodes yet. Next: volley logs --unit experiments")
    if answer["experiments"]:
        every = answer["experiments"]
        experiments, left_out = (every, "") if all_experiments else _shortened(every)
        shown += [_experiments(experiments), *filter(None, [left_out])]
    else:
        lines.append("No experiments. Next: volley submit experiments/pong.yaml")
    return Group(*shown, *lines)


def known_names(stack: Stack) -> list[str]:
    """Returns the experiments of the last status, for the shell's completion."""
    return list(remembered(_names(stack)).get("names", []))


def _ask(head: Head, stack: Stack) -> dict[str, Any]:
    answer = head.ask("status")
    remember(_names(stack), {"names": [one["name"] for one in answer["experiments"]]})
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
    queued = [one for one in experiments if one["state"] == "QUEUED"]
    queued.sort(key=lambda one: one.get("position") or 0)
    ended = [one for one in experiments if one["state"] not in ("QUEUED", *UNDER_WAY)]
    hidden = {"queued": queued[SHOWN:], "ended": ended[:-SHOWN]}
    names = {one["name"] for some in hidden.values() for one in some}
    told = ", ".join(f"{len(some)} {word}" for word, some in hidden.items() if some)
    line = f"Not shown: {told}. Next: volley status --all" if told else ""
    return [one for one in experiments if one["name"] not in names], line


def _experiments(experiments: list[Mapping[str, Any]]) -> Table:
    table = Table("experiment", "state", "return", "steps", "steps/s", "env runners", "left", "why")
    for one in experiments:
        run = one.get("status") or {}
        state = str(one["state"])
        place = f" ({one['position']})" if state == "QUEUED" and one.get("position") else ""
        left = run.get("seconds_left")
        table.add_row(
            str(one["name"]),
            Text(f"{state}{place}", style=COLORS.get(state, "")),
            number(run.get("episode_return")),
            number(run.get("env_steps")),
            number(run.get("steps_per_s")),
            number(run.get("num_env_runners")),
            duration(left) if left is not None else "",
            printable(_why(one, run)),
        )
    return table


def _why(experiment: Mapping[str, Any], run: Mapping[str, Any]) -> str:
    live = experiment["state"] in UNDER_WAY
    wish = WISHES.get(experiment.get("wish", "")) if live else None
    return wish or experiment.get("reason") or run.get("reason") or ""
