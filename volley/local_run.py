"""`volley.train`: a training on this machine, in a process of its own that runs the command."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

from payload.errors import UserError
from payload.notification import VARIABLE
from payload.run.run_status import RunStatus
from volley.errors import need
from volley.experiment_arguments import Given, experiment_of, only_file, write_file
from volley.run import Run

OF_NOTEBOOK = {"CLICOLOR", "CLICOLOR_FORCE", "FORCE_COLOR", "MPLBACKEND"}
"""Variables with which a notebook makes programs write for its pages: here a file is written."""


def train(
    experiment: Given = None,
    *,
    results: str | os.PathLike[str] = "results",
    **keys: Any,
) -> LocalRun:
    """Starts a training on this machine and returns at once.

    The training ends with this process, after a checkpoint.

    Args:
        experiment: An experiment file, or a dict of its keys; None for the defaults.
        results: The folder of results.
        keys: Keys of the experiment (run, env, stop ...), or settings of its `config`.

    Raises:
        UserError: The experiment cannot be used, or Ray is not installed.
    """
    need("ray", "Ray")
    checked = experiment_of(experiment, keys)
    folder = Path(tempfile.mkdtemp(prefix="volley-run-"))
    file = only_file(experiment, keys) or write_file(checked, experiment, folder)
    arguments = (str(file), "--results", str(Path(results).absolute()))
    # A file that was written here has the variable's name in place of a URL.
    url = {VARIABLE: checked.notify} if checked.notify and "://" in checked.notify else {}
    return LocalRun(f"{checked.run} on {checked.env}", arguments, folder, url)


_runs: list[LocalRun] = []
"""Those that this process has started."""


class LocalRun(Run):
    """A training in a process of its own."""

    poll_s = 0.2

    def __init__(
        self,
        title: str,
        arguments: Sequence[str],
        folder: Path,
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Starts it.

        Args:
            title: Its name until it has a folder.
            arguments: Those of `volley train`.
            folder: For its output and state; removed when this process ends.
            variables: Of its environment, besides this process's.
        """
        self._title, self._folder = title, folder
        self._output, self._status = folder / "output.log", folder / "status.json"
        # Without -P, modules in this folder would replace installed ones.
        command = [sys.executable, "-P", "-m", "volley", "train", *arguments]
        kept = {name: v for name, v in os.environ.items() if name not in OF_NOTEBOOK}
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [*command, "--status", str(self._status)],
                env={**kept, **variables},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C in any cell would reach it otherwise.
            )
        _runs.append(self)

    @property
    def name(self) -> str:
        """The name of its folder, once it has one."""
        folder = self.status.run
        return Path(folder).name if folder else self._title

    @property
    def status(self) -> RunStatus:
        code = self._process.poll()
        # In this order: a process that has ended has written its last state.
        status = RunStatus("STARTING", "")
        with suppress(OSError):
            status = RunStatus.read(self._status)
        if code is None or status.state in ("FINISHED", "FAILED", "KILLED"):
            return status
        if code in (-signal.SIGINT, 128 + signal.SIGINT):
            return status.ended("KILLED", "interrupted")
        if code == 0:
            return status.ended("FINISHED", "")
        if code < 0:
            return status.ended("FAILED", f"killed by {signal.Signals(-code).name}")
        return status.ended("FAILED", self._last_line())

    def is_over(self) -> bool:
        return self._process.poll() is not None

    def logs(self, follow: bool = False, lines: int = 100) -> None:
        with self._output.open(errors="replace") as output:
            print(*deque(output, lines), sep="", end="")
            while follow:
                over = self.is_over()
                print(output.read(), end="", flush=True)
                if over:
                    return
                time.sleep(self.poll_s)

    def wait(self) -> RunStatus:
        """Waits until the run is over; an interrupt stops it after a checkpoint, as Ctrl-C does.

        Raises:
            UserError: It has failed.
        """
        try:
            return super().wait()
        except KeyboardInterrupt:
            self.stop()
            raise

    def stop(self) -> RunStatus:
        """Stops it after a checkpoint, and waits for that; an interrupt meanwhile stops it at once.

        It does nothing to a run that is over.
        """
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait()
        except KeyboardInterrupt:
            self._process.send_signal(signal.SIGINT)
            raise
        return self.status

    def pull(self, to: str | os.PathLike[str] | None = None) -> Path:
        """Returns its folder; copies it to another one if `to` is given."""
        folder = self._run_folder()
        return folder if to is None else Path(shutil.copytree(folder, to, dirs_exist_ok=True))

    def checkpoints(self) -> Sequence[Path]:
        from payload.run.run_folder import RunFolder

        store = RunFolder(self._run_folder()).checkpoints()
        return [checkpoint.path for checkpoint in store.newest_first()]

    def _run_folder(self) -> Path:
        """Returns the run's folder; raises UserError before there is one."""
        status = self.status
        if status.run:
            return Path(status.run)
        if status.state == "FAILED":
            raise self._failure(status)
        raise UserError(f"{self.name}: {status.state}, so it has no folder yet")

    def _files(self, status: RunStatus, *names: str) -> dict[str, str]:
        if not status.run:
            return {}
        paths = {name: Path(status.run, name) for name in names}
        return {name: path.read_text() for name, path in paths.items() if path.exists()}

    def _failure(self, status: RunStatus) -> UserError:
        # What the command refuses has no folder: its line says all.
        return super()._failure(status) if status.run else UserError(status.reason)

    def _last_line(self) -> str:
        lines = self._output.read_text(errors="replace").strip().splitlines()
        return lines[-1].removeprefix("volley: ") if lines else "it printed nothing"


@atexit.register
def end_all() -> None:
    """Ends the runs of this process after their checkpoints."""
    # All of them first: a notebook's server kills a kernel that takes some seconds to end.
    for run in _runs:
        run._process.send_signal(signal.SIGINT)
        shutil.rmtree(run._folder, ignore_errors=True)
    while _runs:
        _runs.pop()._process.wait()
