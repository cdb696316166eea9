"""`volley-head tensorboard`: TensorBoard of all runs, for as long as a laptop looks at it."""

import os
import select
import subprocess
import sys
import tempfile
from argparse import Namespace
from pathlib import Path

from ..paths import PYTHON, RUNS
from ..queue.store import RefusedError, Store

POLL_S = 0.5
END_S = 5.0


def tensorboard_command(python: str | Path, folder: Path, port: int) -> list[str]:
    """Returns the command that serves the event files below a folder, on loopback."""
    listen = ["--host", "127.0.0.1", "--port", str(port)]
    # Its faster reader does not drop what a resumed run trained a second time.
    reader = "--load_fast=false"
    return [str(python), "-m", "tensorboard.main", "--logdir", str(folder), *listen, reader]


def tensorboard(_: Store, options: Namespace) -> None:
    """Serves until stdin ends, which it does when the laptop's command ends or is killed.

    Raises:
        RefusedError: The server has ended.
    """
    command = tensorboard_command(PYTHON, RUNS, options.port)
    # TensorBoard leaves a folder in that of temporary files.
    with tempfile.TemporaryDirectory() as temporary, tempfile.TemporaryFile("w+") as log:
        environment = {**os.environ, "TMPDIR": temporary}
        server = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
        )
        try:
            while server.poll() is None:
                if _stdin_has_ended():
                    return
        finally:
            _end(server)
        log.seek(0)
        last = (log.read().splitlines() or ["no output"])[-1]
    missing = "No module named" in last
    raise RefusedError(
        f"TensorBoard has ended on the head: {last}",
        "volley up" if missing else "volley dashboard --tensorboard",
    )


def _stdin_has_ended() -> bool:
    """Waits a moment; whether the other end of stdin is closed."""
    readable, _, _ = select.select([sys.stdin], [], [], POLL_S)
    return bool(readable) and not os.read(sys.stdin.fileno(), 1)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
