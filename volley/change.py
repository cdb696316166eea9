"""`volley stop` and `volley resume`."""

from __future__ import annotations

from volley.head import Head
from volley.stack import Stack
from volley.tables import show, stands

UNDER_WAY = ("STARTING", "TRAINING")


def change(stack: Stack, verb: str, name: str, as_json: bool) -> int:
    """Stops or resumes an experiment; shows the state that it has then."""
    answer = Head(stack).ask(verb, name)
    # The head waits some minutes for the checkpoint.
    late = verb == "stop" and answer["state"] in UNDER_WAY
    after = ["It has not written its checkpoint yet. Next: volley status"] if late else []
    show(as_json, answer, stands(answer), *after)
    return 0
