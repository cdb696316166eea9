"""`volley status` of a cluster without a running head: what the results account has."""

import argparse
import time
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from payload.errors import TemporaryError, UserError
from volley.errors import as_typed
from volley.experiments_table import experiments_table, remember_names, shortened
from volley.source import Off
from volley.stack import Stack
from volley.tables import duration, show


def show_saved(options: argparse.Namespace, off: Off) -> int:
    """Shows a cluster without a running head; that it is asleep is a state, and no error.

    Raises:
        UserError: The results account was asked for, or is all that is left, and cannot be read.
    """
    answer: dict[str, Any] = {"time": None, "experiments": []}
    problem = ""
    try:
        answer = off.results().status()
    except (UserError, TemporaryError) as error:
        if not off.asleep:
            raise
        problem = str(error)
    remember_names(Stack(options.stack), answer)
    lines: list[RenderableType] = []
    if off.why:
        line = f"{off.why[0].upper()}{off.why[1:]}. Next: {off.next_command}"
        lines.append(Text(as_typed(line), style="yellow"))
    if problem:
        lines.append(as_typed(f"Its experiments cannot be listed: {problem}"))
    elif answer["experiments"]:
        every = answer["experiments"]
        shown, left_out = (every, "") if options.all else shortened(every)
        lines += [experiments_table(shown, time.time()), *filter(None, [left_out])]
    else:
        lines.append("The results account has no experiments")
    if answer["time"] is not None and off.account is not None:
        ago = duration(max(0.0, time.time() - answer["time"]))
        lines.append(f"As of {ago} ago, from the results account {off.account.name}")
    account = off.account.name if off.account else None
    state = {"asleep": off.asleep, "results_account": account, "problem": problem or None}
    show(options.as_json, {**state, **answer}, Group(*lines))
    return 0
