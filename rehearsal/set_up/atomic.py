"""Making large things so that no ending, not even SIGKILL, leaves half of one or a mount."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from rehearsal.shell import CLEAN_ENVIRONMENT, CommandError


@contextmanager
def made_aside(target: Path) -> Iterator[Path]:
    """Yields a path to make; only when the body has ended well it becomes `target`.

    What was at `target` goes first: it is of no use any more, and large.
    """
    aside = target.with_name(f"{target.name}.making")
    _remove(aside)
    if target.exists():
        target.rename(aside)
        _remove(aside)
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield aside
        # A machine that loses its power must not find the name without what it stands for.
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
    pauses_s: Sequence[float] = (),
) -> None:
    """Runs a bash script whose mounts and processes end with it, or with this process.

    Args:
        timeout_s: For each try.
        pauses_s: Before each further try, of a script that a network may have failed.

    Raises:
        CommandError: It failed, or took longer than `timeout_s`; the message ends with what it
            said, and has no variables in it.
    """
    for pause_s in pauses_s:
        try:
            return _once_in_namespaces(script, arguments, variables, timeout_s)
        except CommandError:
            time.sleep(pause_s)
    return _once_in_namespaces(script, arguments, variables, timeout_s)


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
