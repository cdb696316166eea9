"""`volley.Cluster`: a stack's cluster, and the runs in its queue."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import fields
from pathlib import Path, PurePosixPath
from typing import Any

from head.queue.record import ENDED
from payload.checkpoint_names import PREFIX, by_iteration
from payload.run.run_status import RunStatus
from volley.experiment_arguments import Given, experiment_of, only_file, script_of, title_of
from volley.experiments_table import why
from volley.head import Head, as_text
from volley.pull import manifest, receive
from volley.run import Run
from volley.runs import RunsOfHead, read_files
from volley.stack import Stack
from volley.submission import Submission, check_files, checked_name, of_file
from volley.submit import Turn, secrets_of, send


class Cluster:
    """The cluster of a Pulumi stack, connected by SSH as the command is."""

    def __init__(self, stack: str | None = None) -> None:
        """
        Args:
            stack: Its name; None for the selected one.

        Raises:
            UserError: No stack, no cluster, or the head cannot be reached.
        """
        self._stack = Stack(stack)
        self._head = Head(self._stack)

    def submit(
        self,
        experiment: Given = None,
        *,
        name: str | None = None,
        now: bool = False,
        priority: int | None = None,
        **keys: Any,
    ) -> ClusterRun:
        """Queues an experiment or a script and returns at once.

        Args:
            experiment: A file of one, or a dict of its keys; None for the default experiment.
            name: Its name on the cluster; by default that of the file, or of algorithm and
                environment.
            now: Start now: checkpoint and requeue the experiments that use the resources.
            priority: Of those that wait, a higher one is served first; 0 by default.
            keys: Keys of the experiment or the script, or settings of the experiment's `config`.

        Raises:
            UserError: It cannot be used, or the head refuses it.
        """
        submission = submission_of(experiment, keys, name)
        secrets = [secrets_of(submission)]
        (answer,) = send(self._stack, [submission], Turn(priority, now), secrets)
        return ClusterRun(self._head, answer["name"])

    def run(self, name: str) -> ClusterRun:
        """Returns an experiment or a script that is in the queue, or has been.

        Raises:
            UserError: No experiment has this name.
        """
        self._head.ask("status", "--name", name)
        return ClusterRun(self._head, name)


class ClusterRun(Run):
    """An experiment or a script in the head's queue."""

    poll_s = 2.0

    def __init__(self, head: Head, name: str) -> None:
        self._head, self._name = head, name

    @property
    def name(self) -> str:
        return self._name

    @property
    def status(self) -> RunStatus:
        (record,) = self._head.ask("status", "--name", self.name)["experiments"]
        written = record["status"] or {}
        place = f"position {record['position']}" if record["position"] else ""
        reason = "; ".join(filter(None, (place, why(record, written))))
        # An older or a newer payload may have written other keys.
        keys = {field.name for field in fields(RunStatus)}
        values = {"run": "", **{key: value for key, value in written.items() if key in keys}}
        return RunStatus(**{**values, "state": record["state"], "reason": reason})

    def is_over(self) -> bool:
        return self.status.state in ENDED

    def logs(self, follow: bool = False, lines: int = 100) -> None:
        words = ["logs", self.name, "--lines", str(lines), *(["--follow"] if follow else [])]
        # A notebook keeps the frame of an interrupted cell, and with it the connection.
        with closing(self._head.output(*words)) as output:
            for text in as_text(output):
                print(text, end="", flush=True)

    def stop(self) -> RunStatus:
        self._head.ask("stop", self.name)
        return self.status

    def pull(self, to: str | os.PathLike[str] | None = None) -> Path:
        """Downloads new files to a folder, results/NAME by default; returns the folder."""
        return Path(
            receive(RunsOfHead(self._head), self.name, None if to is None else Path(to))["folder"]
        )

    def checkpoints(self) -> Sequence[PurePosixPath]:
        answer = RunsOfHead(self._head).listing(self.name)
        below = (*_folder(self.status).parts, "checkpoints")
        depth = len(below)
        folders = {
            PurePosixPath(answer["root"], *file.path.parts[: depth + 1])
            for file in manifest(answer)
            if file.path.parts[:depth] == below
            and file.link is None
            and file.path.parts[depth].startswith(PREFIX)
        }
        return sorted(folders, key=by_iteration, reverse=True)

    def _files(self, status: RunStatus, *names: str) -> dict[str, str]:
        if not status.run:
            return {}
        paths = [str(_folder(status) / name) for name in names]
        contents = read_files(RunsOfHead(self._head), self.name, paths)
        return {PurePosixPath(path).name: text.decode() for path, text in contents.items()}


def _folder(status: RunStatus) -> PurePosixPath:
    """Returns the run's folder in the folder of its experiment's runs."""
    return PurePosixPath("runs", PurePosixPath(status.run).name)


def submission_of(given: Given, keys: Mapping[str, Any], name: str | None) -> Submission:
    """Returns what `Cluster.submit` sends.

    Raises:
        UserError: It cannot be used.
    """
    path = only_file(given, keys)
    if path is not None:
        return of_file(path, name, [], {})
    read = script_of(given, keys) or experiment_of(given, keys)
    check_files(read)
    return Submission(checked_name(Path(f"{title_of(read, given)}.yaml"), name), read)
