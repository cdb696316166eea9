"""Decides what happens to an experiment whose job has ended: it is over, or it is retried."""

import subprocess
import sys
import time

from ray.job_submission import JobStatus

from ..paths import RUNS
from .plan import REFUSAL, finish_runs
from .record import ENDED, OUTPUT, Record, read_status
from .store import Store

RETRY_AFTER_S = 15.0
STARTS_AN_HOUR = 10
HOUR_S = 3600.0
SAVE = [sys.executable, "-m", "head.results", "save"]


class Ends:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._saving: list[subprocess.Popen[bytes]] = []

    def of_job(self, record: Record, status: JobStatus, code: int | None, closing: bool) -> None:
        """Handles the end of a job.

        Args:
            code: The payload's exit code.
            closing: Whether the queue has stopped the job because the queue itself ends; the next
                queue continues the job.
        """
        if status == JobStatus.SUCCEEDED:
            finish_runs(RUNS / record.key)
            self._end(record, "FINISHED", self._reason(record))
        elif record.wish:
            self.leave(record)
        elif closing:
            self._store.change(record, state="STARTING", job="")
        else:
            self._failed(record, code)

    def of_start(self, record: Record, code: int, closing: bool) -> None:
        """Handles a job that could not be submitted."""
        if record.wish:
            self.leave(record)
        elif not closing:
            self._failed(record, code)

    def leave(self, record: Record) -> None:
        """Carries out the wish once no process of the experiment runs."""
        if record.wish == "requeue":
            self._say(record, "QUEUED: makes room")
            self._store.change(record, state="QUEUED", wish="", job="")
        else:
            self._end(record, "STOPPED", "stopped")

    def ended_unseen(self, record: Record) -> bool:
        """Ends a script whose job was lost with Ray after the script itself had ended."""
        status = read_status(self._store.folder(record.name))
        if not record.script or not record.attempts or status.get("state") not in ENDED:
            return False
        if status["state"] == "FINISHED":
            finish_runs(RUNS / record.key)
        self._end(record, status["state"], str(status.get("reason", "")))
        return True

    def too_often(self, record: Record) -> bool:
        """Ends an experiment that was started too often within an hour."""
        recent = [start for start in record.starts if start > time.time() - HOUR_S]
        if len(recent) < STARTS_AN_HOUR:
            return False
        reason = f"started {len(recent)} times within an hour; {record.reason}"
        self._end(record, "FAILED", reason)
        return True

    def without_machines(self, record: Record) -> None:
        """Ends a script whose machines did not come in time."""
        limit = f"{record.machines_timeout_s:g}"
        reason = f"cluster_coordination_timeout_seconds: no machines for it within {limit} s"
        self._end(record, "FAILED", reason)

    def _failed(self, record: Record, code: int | None) -> None:
        reason = self._reason(record) or f"exit code {code}"
        if code == REFUSAL:
            self._end(record, "FAILED", reason)
            return
        self._say(record, f"failed, retry in {RETRY_AFTER_S:.0f} s: {reason}")
        not_before = time.time() + RETRY_AFTER_S
        self._store.change(record, state="STARTING", reason=reason, job="", not_before=not_before)

    def _end(self, record: Record, state: str, reason: str) -> None:
        ended = self._store.change(record, state=state, reason=reason, ended=time.time())
        if ended is None or ended.state != state:
            return  # A person wants something else; the next step handles it.
        self._say(record, f"{state}: {reason}")
        if record.wish == "replace":
            self._store.place_next(record.name)
        # The next run of the timer may be 30 s away; it retries a failed save.
        self._saving = [process for process in self._saving if process.poll() is None]
        self._saving.append(subprocess.Popen(SAVE))

    def _reason(self, record: Record) -> str:
        """Returns why the payload has ended: the reason in its status, or else its last line."""
        folder = self._store.folder(record.name)
        status = read_status(folder)
        # Of a start it is only the progress.
        if status.get("reason") and status.get("state") != "STARTING":
            return str(status["reason"])
        output = folder / OUTPUT
        with output.open("rb") as file:
            file.seek(max(0, output.stat().st_size - 4096))
            lines = file.read().decode(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    def _say(self, record: Record, text: str) -> None:
        print(f"{record.name}: {text}", flush=True)
