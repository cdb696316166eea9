"""The acts `seeds` and `secret`: an experiment's metrics and secrets, and notices of its end."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from rehearsal import background_process
from rehearsal.addresses import CHAT_ADDRESS
from rehearsal.host_paths import RUN
from rehearsal.scenario.context import Context
from rehearsal.scenario.head_commands import SECRETS, files_with
from rehearsal.scenario.laptop import ON_THE_INTERNET, Volley, runs
from rehearsal.scenario.outcomes import UnexpectedError
from rehearsal.scenario.training_watch import until

FILES = Path(__file__).parent / "seeds"
NAME, SCRIPT = "seeds", "uses-secret"
RUNS = 1 + 2
"""Two seeds, whose MLflow runs are nested in one."""
LEAN = "env_runners/info/lean"
VARIABLE = {"TEAM_TOKEN": "a-secret-of-the-team"}
CHAT = RUN / "chat"
PATH = "/services/a-secret-of-the-chat"
PORT = 8065
URL = f"http://{CHAT_ADDRESS}:{PORT}{PATH}"
ENDS_S, TOLD_S = 240.0, 60.0


def seeds(context: Context, volley: Volley) -> str:
    """Submits two seeds with a chat to notify; checks their runs and the message."""
    _open_chat()
    volley.type("submit", str(FILES / f"{NAME}.yaml"), "--notify", URL)
    seconds = until(lambda: NAME in volley.finished(), ENDS_S, "the end of the seeds")
    message = _message(NAME)
    with context.tunnel() as laptop:
        newest = runs(laptop, context.outputs["mlflow"])[:RUNS]
    children = [run for run in newest if "mlflow.parentRunId" in _values(run, "tags")]
    leans = [_values(run, "metrics").get(LEAN) for run in children]
    if len(children) != RUNS - 1 or None in leans or message["run_id"] != _parent(newest):
        raise UnexpectedError(f"{len(children)} nested runs, {LEAN}: {leans}; notice: {message}")
    cost = message["cost"]
    return f"after {seconds:.0f} s; each run has {LEAN}; one notice: {message['text']}, ${cost:.2f}"


def secret(context: Context, volley: Volley) -> str:
    """Submits a script with a secret; checks which files of the head have it and the chat's URL."""
    options = ("--secret", *VARIABLE, "--notify", URL)
    volley.type("submit", str(FILES / "uses_secret.py"), *options, variables=VARIABLE)
    until(lambda: SCRIPT in volley.finished(), ENDS_S, "the end of the script")
    message = _message(SCRIPT)
    (token,) = VARIABLE.values()
    if f"the secret has {len(token)} characters" not in volley.type("logs", SCRIPT):
        raise UnexpectedError(f"the script did not use its secret: {message}")
    places = {word: files_with(context.head, word) for word in (token, PATH)}
    expected = {token: {f"{SECRETS}/{SCRIPT}"}, PATH: {f"{SECRETS}/{NAME}", f"{SECRETS}/{SCRIPT}"}}
    if places != expected:
        raise UnexpectedError(f"on the head: {places}")
    return f"one notice: {message['text']}; one file on the head has the secret"


def _open_chat() -> None:
    """Starts the chat on the internet; `clean` stops everything there."""
    CHAT.mkdir()
    arguments = (CHAT_ADDRESS, str(PORT), str(CHAT / "messages"))
    background_process.start(
        [*ON_THE_INTERNET, sys.executable, FILES / "chat.py", *arguments],
        pid_file=CHAT / "pid",
        log=CHAT / "log",
        address=CHAT_ADDRESS,
        port=PORT,
    )


def _message(name: str) -> dict[str, Any]:
    """Waits for the message about an experiment, which must be the only one."""

    def messages() -> list[dict[str, Any]]:
        file = CHAT / "messages"
        lines = file.read_text().splitlines() if file.exists() else []
        return [message for message in map(json.loads, lines) if message["name"] == name]

    until(lambda: bool(messages()), TOLD_S, f"a message about {name}")
    (message,) = messages()
    if message["state"] != "FINISHED" or message["path"] != PATH:
        raise UnexpectedError(f"notice: {message}")
    return message


def _parent(newest: list[dict[str, Any]]) -> str | None:
    parents = {_values(run, "tags").get("mlflow.parentRunId") for run in newest} - {None}
    return parents.pop() if len(parents) == 1 else None


def _values(run: dict[str, Any], kind: str) -> dict[str, Any]:
    """Returns a run's tags or metrics."""
    return {item["key"]: item["value"] for item in run["data"].get(kind, [])}
