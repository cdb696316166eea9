"""`volley status`: machines, experiments, sleep, the last save and the cost.

All times in volley-head's answer are seconds since the epoch, by the head's clock.
"""

import argparse
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from payload.errors import UserError, printable
from volley.cost import cost_so_far
from volley.errors import LostError, as_typed
from volley.experiments_table import experiments_table, next_try, remember_names, shortened
from volley.head import Head
from volley.saved_status import show_saved
from volley.sleeping_head import AsleepError, remember_sleep
from volley.source import Off, source
from volley.stack import Outputs, Stack
from volley.tables import console, duration, number, show

WATCH_S = 2.0
DAY_S = 86_400.0
IMAGE_DATE = re.compile(r"\.(20\d{6})\d*\b")
"""Versions of microsoft-dsvm's images: 22.04.2026022401."""
STALE_S = 30.0
"""The head writes the cluster's state every few seconds; an older state may be wrong."""


def status(options: argparse.Namespace) -> int:
    """Shows the cluster once, or every two seconds until Ctrl-C."""
    if options.watch and options.as_json:
        raise UserError("--watch and --json cannot be combined")
    stack = Stack(options.stack)
    head = source(options)
    if isinstance(head, Off):
        return show_saved(options, head)
    if not options.watch:
        answer = _ask(head, stack)
        show(options.as_json, answer, status_page(answer, head.outputs, options.all))
        return 0
    from rich.live import Live

    with Live(console=console(), auto_refresh=False, screen=False) as live:
        while True:
            try:
                page = status_page(_ask(head, stack), head.outputs, options.all)
            except AsleepError:
                raise
            except LostError as error:  # The network may come back.
                page = Text(f"{error}. Trying again ...")
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
        *service_lines(answer),
        *cluster_lines(answer),
        spent.line(),
        f"Results were saved {ago} ago" if saved else "Nothing has been saved yet",
        *_image(answer, outputs),
    ]
    on_head = answer.get("head", {})
    if memory := on_head.get("memory_bytes"):
        lines.append(f"The queue's services use {memory / 2**20:,.0f} MiB on the head")
    if (free := on_head.get("disk_free_bytes")) is not None:
        lines.append(_disk(free, on_head.get("disk_warning", "")))
    shown: list[RenderableType] = []
    if (in_jupyter := answer.get("jupyter")) is not None:
        count = in_jupyter["kernels"]
        lines.append(f"JupyterLab is running with {count} kernel{'s' * (count != 1)}")
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
        experiments, left_out = (every, "") if all_experiments else shortened(every)
        shown += [experiments_table(experiments, answer["time"]), *filter(None, [left_out])]
    else:
        lines.append(as_typed("No experiments. Next: volley submit experiments/pong.yaml"))
    return Group(*shown, *lines)


def _image(answer: Mapping[str, Any], outputs: Outputs) -> Iterator[str]:
    """Yields a line with the age of the head's image, which the marketplace has in its version."""
    age = "of unknown age"
    if dated := IMAGE_DATE.search(outputs.values.get("image", "")):
        with suppress(ValueError):  # Another publisher's digits.
            made = datetime.strptime(f"{dated[1]} +0000", "%Y%m%d %z").timestamp()
            age = f"{max(0, answer['time'] - made) // DAY_S:.0f} days old"
    looked = answer.get("head", {}).get("updated")
    updated = "have not been updated since the head's start"
    if looked:
        updated = f"were updated {duration(max(0.0, answer['time'] - looked))} ago"
    yield f"The head's image is {age}; OpenSSH and OpenSSL {updated}"


def _disk(free: int, warning: str) -> Text:
    line = f"The head's disk has {free / 2**30:,.1f} GiB left"
    line = as_typed(": ".join(filter(None, (line, warning))))
    return Text(line, style="yellow" if warning else "")


def _ask(head: Head, stack: Stack) -> dict[str, Any]:
    answer = head.ask("status")
    remember_names(stack, answer)
    sleeps_at = (answer.get("sleep") or {}).get("sleeps_at")
    in_s = None if sleeps_at is None else sleeps_at - answer["time"]
    remember_sleep(head.outputs, None if in_s is None else time.time() + in_s)
    return answer


def _nodes(nodes: list[Mapping[str, Any]], seen: str) -> Table:
    # Ray names a node by its address.
    table = Table("node", "role", f"state{seen}", "CPUs", "GPUs")
    for node in nodes:
        words = [str(node.get(key, "")) for key in ("name", "role", "state")]
        table.add_row(*words, number(node.get("cpus")), number(node.get("gpus")))
    return table


def as_of(time: float | None, now: float) -> str:
    """Returns " (as of 5 min ago)" for an old state."""
    if time is None or now - time <= STALE_S:
        return ""
    return f" (as of {duration(now - time)} ago)"


def service_lines(answer: Mapping[str, Any]) -> Iterator[Text]:
    """Yields a line for each service of the head that does not work."""
    for service in answer.get("services") or []:
        unit, restarts = service["unit"], service["restarts"]
        what = f"keeps restarting ({restarts} times)" if restarts else "has failed"
        line = f"The head's service {unit} {what}. Next: volley logs --unit {unit}"
        yield Text(as_typed(printable(line)), style="red")


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
        sizes = workers.get("sizes") or {}
        parts += [f"{count} {size}" for size, count in sizes.items()] if len(sizes) > 1 else []
        line = f"Workers: {', '.join(parts)}{as_of(workers.get('time'), now)}"
        if missing := workers.get("missing"):
            why = workers.get("why") or f"{missing} missing"
            line += f". {why}{next_try(workers, now)}"
        yield Text(line)
    if problem := workers.get("problem"):
        yield Text(f"Workers: {problem}", style="red")


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
        yield Text(warning, style="yellow")
    if problem := sleep.get("problem"):
        line = f"The cluster could not fall asleep: {problem}{next_try(sleep, now)}"
        yield Text(line, style="red")
