"""The head's own command, volley-head, over SSH: it answers with one JSON object."""

import codecs
import json
import re
import subprocess
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO, Any

from payload.archive import Archive
from payload.errors import UserError, printable
from volley.errors import LostError, refused
from volley.sleeping_head import why_unreachable
from volley.ssh import LOST, Connection, UnreachableError
from volley.stack import Outputs, Stack

VOLLEY_HEAD = ("sudo", "volley-head")
CHUNK = 2**16
NOT_FOUND = 127
"""A shell's exit code for an unknown command."""
BEGUN = re.compile(r"(\x1b([ -/]{0,8}|\[[0-?]{0,64}[ -/]{0,8})|\r)\Z")
"""The begin of a sequence of terminals at the end of a text."""
REFUSAL = b'{"error"'
OLDER = re.compile(r"volley-head.*: error: (unrecognized arguments|.*invalid choice)")
"""What argparse says on a head that lacks a verb or an option."""
OnSent = Callable[[int], None]
"""Called with the number of bytes that were sent so far."""


class Head:
    """The head of a stack, connected."""

    def __init__(self, stack: Stack) -> None:
        """Connects, or uses the open connection.

        Raises:
            UserError: No stack, no cluster, or the head cannot be reached.
        """
        self._stack = stack
        self.has_repeated = False
        """Whether a request was sent again: the head may have carried out the first one."""
        outputs = stack.remembered()
        if outputs is not None and Connection(outputs).is_open():
            self.connection = Connection(outputs)
        else:
            self._connect()

    @property
    def outputs(self) -> Outputs:
        return self.connection.outputs

    def ask(
        self, *words: str, stdin: bytes | Archive = b"", on_sent: OnSent = lambda _: None
    ) -> dict[str, Any]:
        """Asks volley-head, once more if the connection is lost.

        Args:
            words: The command and its arguments.
            stdin: What the command reads; of an archive no more is in memory than is being sent.

        Raises:
            UserError: The head refuses, or cannot be reached.
        """
        try:
            return self._ask(words, stdin, on_sent)
        except LostError:
            self._reconnect()
            self.has_repeated = True
            return self._ask(words, stdin, on_sent)

    def systemctl(self, verb: str, unit: str) -> str:
        """Starts or stops a unit and waits for it; returns why that failed, or "".

        Raises:
            UserError: The connection was lost.
        """
        command = self.connection.command(["sudo", "systemctl", verb, unit])
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        if done.returncode == LOST:
            raise error_of(done.returncode, done.stdout, done.stderr)
        if done.returncode == 0:
            return ""
        # "Job for jupyter.service failed because ...", then where to look on the head itself.
        line = done.stderr.decode(errors="replace").strip().partition("\n")[0]
        return line.partition(". See")[0].rstrip(".") or f"exit code {done.returncode}"

    def show(self, *words: str) -> int:
        """Prints volley-head's output as it arrives; returns the exit code.

        Raises:
            UserError: The head refuses, or the connection was lost.
        """
        show_output(self.output(*words))
        return 0

    def output(self, *words: str) -> Generator[bytes, None, None]:
        """Yields volley-head's output as it arrives; a refusal is not part of it.

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
                yield chunk
            stderr = process.stderr.read()
        if process.returncode != 0:
            raise error_of(process.returncode, refusal, stderr)
        yield refusal

    @contextmanager
    def reading(self, *words: str, stdin: bytes = b"") -> Iterator[IO[bytes]]:
        """Reads volley-head's output as it arrives.

        Raises:
            UserError: At the end, if the head refused or the connection was lost.
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
            except EOFError:  # ssh gives the reason.
                ended_early = True
            left, stderr = process.stdout.read(), process.stderr.read()
        if process.returncode != 0 or ended_early:
            raise error_of(process.returncode, left, stderr)

    def _ask(self, words: Sequence[str], stdin: bytes | Archive, on_sent: OnSent) -> dict[str, Any]:
        with self._running(words) as process:
            assert process.stdin is not None
            sent = 0
            with suppress(BrokenPipeError):
                for piece in stdin.pieces() if isinstance(stdin, Archive) else [stdin]:
                    process.stdin.write(piece)
                    sent += len(piece)
                    on_sent(sent)
            stdout, stderr = process.communicate()
        if process.returncode != 0:
            raise error_of(process.returncode, stdout, stderr)
        return _answer(stdout)

    @contextmanager
    def _running(
        self, words: Sequence[str], stdin: int = subprocess.PIPE
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Runs volley-head; an exception, such as Ctrl-C, ends ssh here and nothing on the head."""
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
        except UnreachableError as error:
            self._stack.check_not_deleting()
            raise why_unreachable(self.outputs, error) from None

    def _reconnect(self) -> None:
        """Connects to the current head; the previous one may have been replaced."""
        self.connection.close()
        self._connect()


def show_output(chunks: Iterable[bytes]) -> None:
    """Prints an output as it arrives; a terminal gets what it may show."""
    if sys.stdout.isatty():
        for text in as_text(chunks):
            print(text, end="", flush=True)
        return
    for chunk in chunks:
        sys.stdout.buffer.write(chunk)
        sys.stdout.flush()


def as_text(chunks: Iterable[bytes]) -> Iterator[str]:
    """Yields what a terminal may show of an output as it arrives: text, in its colours."""
    decoder, left = codecs.getincrementaldecoder("utf-8")(errors="replace"), ""
    for chunk in chunks:
        text = left + decoder.decode(chunk)
        # The rest of a sequence, or of a line's end, may be in the next chunk.
        begun = BEGUN.search(text)
        text, left = (text[: begun.start()], begun[0]) if begun else (text, "")
        yield printable(text, colours=True)
    yield printable(left + decoder.decode(b"", final=True), colours=True)


def _answer(stdout: bytes) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = json.loads(stdout)
    except ValueError:
        text = stdout.decode(errors="replace")[:60]
        raise refused(
            f"the head sent unexpected text ({text!r}); a login message may print it",
            "volley exec -- true",
        ) from None
    return answer


def error_of(exit_code: int, stdout: bytes, stderr: bytes) -> UserError:
    """Returns the error of a command that failed on the head."""
    reason = " ".join(stderr.decode(errors="replace").split())
    if exit_code == LOST:
        return LostError(
            f"the connection to the head was lost ({reason or 'ssh gave no reason'}); "
            "the cluster keeps running. Next: the same command again"
        )
    if OLDER.search(reason):
        return refused(
            "the head runs an older volley that cannot do this", "volley up, to update it"
        )
    if exit_code == NOT_FOUND or "command not found" in reason:
        return refused("the head has no command volley-head", "volley up")
    try:
        answer = json.loads(stdout)
        return refused(str(answer["error"]).rstrip("."), str(answer["next"]))
    except (ValueError, TypeError, KeyError):
        return refused(
            f"volley-head failed on the head with exit code {exit_code}: {reason}",
            "volley logs --unit experiments",
        )
