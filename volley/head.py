"""The head's own command, volley-head, asked over SSH: one JSON object answers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO, Any

from payload.errors import UserError
from volley.errors import LostError, refused
from volley.ssh import LOST, Connection, UnreachableError
from volley.stack import Outputs, Stack

VOLLEY_HEAD = ("sudo", "volley-head")
CHUNK = 2**16
NOT_FOUND = 127
"""Exit code of a shell."""
REFUSAL = b'{"error"'
Told = Callable[[int], None]
"""Is told how many bytes were sent."""


class Head:
    """The head of a stack, connected."""

    def __init__(self, stack: Stack) -> None:
        """Connects, or takes the connection that is open.

        Raises:
            UserError: No stack, no cluster, or the head cannot be reached.
        """
        self._stack = stack
        known = stack.remembered()
        if known is not None and Connection(known).is_open():
            self.connection = Connection(known)
        else:
            self._connect()

    @property
    def outputs(self) -> Outputs:
        return self.connection.outputs

    def ask(self, *words: str, stdin: bytes = b"", told: Told = lambda _: None) -> dict[str, Any]:
        """Asks volley-head; a question whose connection was lost is put once more.

        Args:
            words: The verb and its arguments.
            stdin: What the verb reads.

        Raises:
            UserError: The head refuses, or cannot be reached.
        """
        try:
            return self._ask(words, stdin, told)
        except LostError:
            self._reconnect()
            return self._ask(words, stdin, told)

    def show(self, *words: str) -> int:
        """Shows what volley-head writes, as it comes; returns the exit code.

        Raises:
            UserError: The head refuses, or the connection was lost.
        """
        with self._running(words, stdin=subprocess.DEVNULL) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            refusal, shown = b"", False
            while chunk := process.stdout.read1(CHUNK):  # type: ignore[attr-defined]
                if refusal or (chunk.startswith(REFUSAL) and not shown):
                    refusal += chunk
                    continue
                shown = True
                sys.stdout.buffer.write(chunk)
                sys.stdout.flush()
            stderr = process.stderr.read()
        if process.returncode != 0:
            raise _error(process.returncode, refusal, stderr)
        sys.stdout.buffer.write(refusal)
        return 0

    @contextmanager
    def reading(self, *words: str, stdin: bytes = b"") -> Iterator[IO[bytes]]:
        """Reads what volley-head writes, as it comes.

        Raises:
            UserError: At the end, if the head has refused or the connection was lost.
        """
        with self._running(words) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stderr is not None
            with suppress(BrokenPipeError):
                process.stdin.write(stdin)
                process.stdin.close()
            ended_early = False
            try:
                yield process.stdout
            except EOFError:  # Why, ssh says.
                ended_early = True
            left, stderr = process.stdout.read(), process.stderr.read()
        if process.returncode != 0 or ended_early:
            raise _error(process.returncode, left, stderr)

    def _ask(self, words: Sequence[str], stdin: bytes, told: Told) -> dict[str, Any]:
        with self._running(words) as process:
            assert process.stdin is not None
            with suppress(BrokenPipeError):
                for at in range(0, len(stdin), CHUNK):
                    process.stdin.write(stdin[at : at + CHUNK])
                    told(min(at + CHUNK, len(stdin)))
            stdout, stderr = process.communicate()
        if process.returncode != 0:
            raise _error(process.returncode, stdout, stderr)
        return _answer(stdout)

    @contextmanager
    def _running(
        self, words: Sequence[str], stdin: int = subprocess.PIPE
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Runs volley-head; an exception, Ctrl-C too, ends ssh here and nothing on the head."""
        command = self.connection.command([*VOLLEY_HEAD, *words])
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=stdin, stdout=pipe, stderr=pipe) as process:
            try:
                yield process
            except BaseException:
                process.kill()
                raise

    def _connect(self) -> None:
        self.connection = Connection(self._stack.outputs())
        try:
            self.connection.open()
        except UnreachableError:
            self._stack.check_not_deleting()
            raise

    def _reconnect(self) -> None:
        """Connects to the head that there is now; the one before may have been replaced."""
        self.connection.close()
        self._connect()


def _answer(stdout: bytes) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = json.loads(stdout)
    except ValueError:
        said = stdout.decode(errors="replace")[:60]
        raise refused(f"the head's answer is not JSON: {said!r}", "volley exec -- true") from None
    return answer


def _error(exit_code: int, stdout: bytes, stderr: bytes) -> UserError:
    """Returns why a question has no answer."""
    said = " ".join(stderr.decode(errors="replace").split())
    if exit_code == LOST:
        return LostError(
            f"the connection to the head was lost ({said or 'ssh gave no reason'}); "
            "the cluster works on. Next: the same command again"
        )
    if exit_code == NOT_FOUND or "command not found" in said:
        return refused("the head has no volley-head: an older volley has made it", "make up")
    try:
        answer = json.loads(stdout)
        return refused(str(answer["error"]).rstrip("."), str(answer["next"]))
    except (ValueError, TypeError, KeyError):
        return refused(
            f"the head's volley-head has failed with exit code {exit_code}: {said}",
            "volley logs --unit experiments",
        )
