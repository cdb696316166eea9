"""`volley stop` and `volley resume`."""

from __future__ import annotations

from head.queue.record import LIVE
from volley.head import Head
from volley.stack import Stack
from volley.tables import in_words, show


def stop_or_resume(stack: Stack, verb: str, name: str, as_json: bool) -> int:
    """Stops or resumes an experiment; shows the state that it has then."""
    answer = Head(stack).ask(verb, name)
    # The head waits some minutes for the checkpoint.
    late = verb == "stop" and answer["state"] in LIVE
    after = ["Its checkpoint is not written yet. Next: volley status"] if late else []
    show(as_json, answer, in_words(answer), *after)
    return 0
