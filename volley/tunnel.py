"""A tunnel from this machine's loopback to the head's, which comes back after it was lost.

It is a connection without a shell; a command of the head may run while it is open.
"""

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

from payload.errors import UserError
from volley.errors import as_typed
from volley.head import error_of
from volley.ports import LOOPBACK, answers, listens
from volley.ssh import LOST, Connection, connect_error
from volley.stack import Outputs

FIRST_PAUSE_S, LAST_PAUSE_S = 1.0, 15.0
POLL_S = 0.1

Tunnel = AbstractContextManager[subprocess.Popen[bytes]]


class EndedError(UserError):
    """What a tunnel led to has ended: connecting again is of no use."""


@dataclass(frozen=True)
class Served:
    """A page that a command of the head serves, for as long as its stdin is open."""

    words: Sequence[str]
    port: int
    """The page's port on this machine."""

    def answers(self) -> bool:
        return answers(f"http://{LOOPBACK}:{self.port}")


@contextmanager
def tunnel(
    outputs: Outputs, ports: Mapping[int, int], served: Served | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Opens a tunnel, and closes it with the block.

    Args:
        ports: Of this machine's loopback, and where they lead on the head's.
        served: Starts and ends with the tunnel.

    Raises:
        UserError: The head cannot be reached, or what it was to serve has ended.
    """
    command = Connection(outputs).tunnel(ports, served.words if served else ())
    with (
        tempfile.TemporaryFile() as stdout,
        tempfile.TemporaryFile() as stderr,
        # If this process is killed, the pipe to stdin closes, and what is served ends.
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=stdout, stderr=stderr) as process,
    ):
        try:
            # ssh listens before the page does.
            while not all(map(listens, ports)) or (served and not served.answers()):
                if process.poll() is not None:
                    stdout.seek(0)
                    stderr.seek(0)
                    if process.returncode == LOST:
                        raise connect_error(stderr.read().decode(errors="replace"), outputs)
                    raise error_of(process.returncode, stdout.read(), stderr.read())
                time.sleep(POLL_S)
            yield process
        finally:
            process.terminate()


def connect_again(opened: Callable[[], Tunnel]) -> NoReturn:
    """Opens a tunnel that was lost, and again whenever it is lost, until Ctrl-C.

    Args:
        opened: Opens it to the stack's current head.

    Raises:
        EndedError: It leads nowhere any more.
    """
    while True:
        print("The connection to the head was lost. Connecting again ...", flush=True)
        _wait_for_head(opened)


def _wait_for_head(opened: Callable[[], Tunnel]) -> None:
    """Connects and stays connected; returns when that connection is lost.

    While `pulumi up` replaces the head, errors of all kinds come and go: each is printed once.
    """
    pause, last = FIRST_PAUSE_S, ""
    while True:
        try:
            with opened() as process:
                print("Connected again.", flush=True)
                process.wait()
            return
        except EndedError:
            raise
        except UserError as error:
            if str(error) != last:
                text = as_typed(str(error)).rstrip(".")
                print(f"volley: {text}. Trying again until Ctrl-C.", file=sys.stderr, flush=True)
            last = str(error)
        time.sleep(pause)
        pause = min(2 * pause, LAST_PAUSE_S)


def end_on_sigterm() -> None:
    """Lets SIGTERM close the tunnel: by default it would leave ssh behind."""
    signal.signal(signal.SIGTERM, _end)


def _end(*_: Any) -> None:
    raise SystemExit(128 + signal.SIGTERM)
