"""`volley stop` and `volley resume`."""

from __future__ import annotations

from operate.head import Head
from operate.stack import Stack
from operate.tables import show


def change(stack: Stack, verb: str, name: str, as_json: bool) -> int:
    """Stops or resumes an experiment; shows the state that it has then."""
    answer = Head(stack).ask_about(name, verb)
    reason = f" ({answer['reason']})" if answer.get("reason") else ""
    show(as_json, answer, f"{name}: {answer['state']}{reason}")
    return 0
