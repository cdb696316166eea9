"""Makes large folders so that nothing, not even SIGKILL, leaves half of one or a mount."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from rehearsal.host_shell import CLEAN_ENVIRONMENT, CommandError

RETRY_PAUSES_S = (5.0, 30.0)
"""A mirror that fails to answer once must not fail the whole set-up."""


@contextmanager
def made_aside(target: Path) -> Iterator[Path]:
    """Yields a path to make; it becomes `target` only if the body succeeds.

    An existing `target` is removed first: it is out of date, and large.
    """
    aside = target.with_name(f"{target.name}.making")
    _remove(aside)
    if target.exists():
        target.rename(aside)
        _remove(aside)
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield aside
        # After a power loss the name must not exist without its content.
        os.sync()
        aside.rename(target)
    except BaseException:
        _remove(aside)
        raise


def in_namespaces(
    script: str,
    *arguments: str | Path,
    variables: Mapping[str, str],
    timeout_s: float,
    retry: bool = False,
) -> None:
    """Runs a bash script whose mounts and processes end with it, or with this process.

    `timeout_s` is for each try; `retry` is for scripts that need a network. The message of a
    CommandError ends with the script's output and contains no variables.
    """
    for pause_s in RETRY_PAUSES_S if retry else ():
        try:
            return _once_in_namespaces(script, arguments, variables, timeout_s)
        except CommandError:
            time.sleep(pause_s)
    return _once_in_namespaces(script, arguments, variables, timeout_s)


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Prints when something begins, and how long it took; names it in a CommandError."""
    print(f"{what} ...", flush=True)
    start = time.monotonic()
    try:
        yield
    except CommandError as error:
        raise CommandError(f"{what}: {error}") from error
    print(f"{what} {time.monotonic() - start:.0f} s", flush=True)


def text_of(path: Path) -> str | None:
    """Returns the content of a file; None without a file."""
    return path.read_text().strip() if path.exists() else None


def _once_in_namespaces(
    script: str, arguments: Sequence[str | Path], variables: Mapping[str, str], timeout_s: float
) -> None:
    end_with_us = ["setpriv", "--pdeathsig", "KILL"]
    namespaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
    try:
        done = subprocess.run(
            [*end_with_us, *namespaces, "bash", "-euc", script, "bash", *map(str, arguments)],
            env=CLEAN_ENVIRONMENT | {"DEBIAN_FRONTEND": "noninteractive"} | dict(variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise CommandError(f"not done after {timeout_s:.0f} s") from error
    if done.returncode != 0:
        raise CommandError(f"exit {done.returncode}: {done.stdout.strip()[-2000:]}")


def _remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)
