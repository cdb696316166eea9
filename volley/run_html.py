"""A run as a notebook shows it."""

from __future__ import annotations

from base64 import b64encode
from html import escape
from typing import TYPE_CHECKING

from volley.experiments_table import COLORS
from volley.tables import duration, number

if TYPE_CHECKING:
    from payload.run.run_status import RunStatus


def run_html(
    name: str,
    status: RunStatus | None = None,
    goal: float | None = None,
    curve: bytes | None = None,
    note: str = "",
) -> str:
    """Returns the HTML of a run. What an experiment could have written is text in it, not markup.

    Args:
        status: None if it cannot be read; then `note` says why.
        goal: The mean return at which the run ends.
        curve: A picture, PNG.
    """
    parts = [f"<b>{escape(name)}</b>"]
    if status is not None:
        color = COLORS.get(status.state, "gray")
        parts = [
            f'<div>{parts[0]} <span style="color: {color}">&#9679;</span> {status.state}</div>',
            _table(status, goal),
            f"<div>{escape(status.reason)}</div>" if status.reason else "",
        ]
    if note:
        parts.append(f"<div>{escape(note)}</div>")
    if curve is not None:
        source = f"data:image/png;base64,{b64encode(curve).decode()}"
        parts.append(f'<img alt="learning curve" width="640" src="{source}">')
    return "\n".join(filter(None, parts))


def _table(status: RunStatus, goal: float | None) -> str:
    """Returns the figures that are known."""
    left = status.seconds_left
    figures = {
        "return": number(status.episode_return),
        "goal": number(goal),
        "steps": number(status.env_steps),
        "steps/s": number(status.steps_per_s),
        "env runners": number(status.num_env_runners),
        "left": "" if left is None else duration(left),
    }
    shown = {title: text for title, text in figures.items() if text}
    if not shown:
        return ""
    head = "".join(f"<th>{title}</th>" for title in shown)
    row = "".join(f"<td>{text}</td>" for text in shown.values())
    return f"<table><tr>{head}</tr><tr>{row}</tr></table>"
