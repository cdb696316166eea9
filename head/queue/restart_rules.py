"""Decides what happens to an experiment whose job has ended: it is over, or it is tried again.

An error in the experiment's file or code is final: exit code 2. A transient error (exit code 75, or
none because Ray did not run the job) is retried with growing pauses for a day. Anything else is a
failure; ten failures within an hour, or without getting further, end the experiment.
"""

import os
import subprocess
import sys
import time

from ray.job_submission import JobDetails, JobStatus

from ..files import open_file
from ..paths import RUNS
from .plan import REFUSAL, finish_runs
from .record import AT_WORK, ENDED, NO_TRIES, OUTPUT, STATUS, Record, read_status
from .store import Store

RETRY_AFTER_S = 15.0
LONGEST_PAUSE_S = 900.0
"""The pause doubles with each try, up to this."""
KEEPS_ITS_PLACE = 3
"""Retries during which it keeps its CPUs, two minutes in all; then others may train."""
AWAY_FOR_S = 24 * 3600.0
STARTS_WITHIN_S = 75 * 60.0
"""A start without output for this long is stuck. Pulling an image may take an hour."""
MOST_FAILURES = 10
HOUR_S = 3600.0
SAVE = [sys.executable, "-m", "head.identity", "save"]


def pauses(record: Record) -> bool:
    """Whether the next try is yet to come; after a step of the clock it is due at once."""
    now = time.time()
    return now < record.not_before <= now + LONGEST_PAUSE_S


def earlier_tries(record: Record, now: float) -> dict[str, float]:
    """Returns what a start at `now` changes in the count of transient errors.

    After so long it has trained, waited or slept, and what a registry did before that says nothing
    about now. A start and the pause before it may take hours.
    """
    return NO_TRIES if now - (record.started or now) > AWAY_FOR_S / 2 else {}


class Ends:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._saving: list[subprocess.Popen[bytes]] = []

    def of_job(self, record: Record, job: JobDetails, closing: bool) -> None:
        """Handles the end of a job.

        Args:
            closing: Whether the queue has stopped the job because the queue itself ends; the next
                queue continues the job.
        """
        if job.status == JobStatus.SUCCEEDED:
            finish_runs(RUNS / record.key)
            self._end(record, "FINISHED", self._reason(record))
        elif record.wish:
            self.leave(record)
        elif closing:
            self._store.change(record, state="STARTING", job="")
        else:
            code = job.driver_exit_code
            self._failed(record, code, (job.message or "") if code is None else "")

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
        elif record.wish == "retry":
            self.away(record, record.reason)
        else:
            self._end(record, "STOPPED", "stopped")

    def ended_unseen(self, record: Record) -> bool:
        """Ends an experiment that had ended by itself when its job was stopped or lost with Ray.

        A training that has failed is retried.
        """
        status = read_status(self._store.folder(record.name))
        state = str(status.get("state", ""))
        if not record.attempts or state not in (ENDED if record.script else {"FINISHED"}):
            return False
        if state == "FINISHED":
            finish_runs(RUNS / record.key)
        self._end(record, state, str(status.get("reason", "")))
        return True

    def without_machines(self, record: Record) -> None:
        """Ends a script whose machines did not come in time."""
        limit = f"{record.machines_timeout_s:g}"
        reason = f"cluster_coordination_timeout_seconds: no machines for it within {limit} s"
        self._end(record, "FAILED", reason)

    def stuck(self, record: Record) -> bool:
        """Requests a retry of a start that has stopped writing output; returns whether it did."""
        folder = self._store.folder(record.name)
        files = [path for path in (folder / OUTPUT, folder / STATUS) if path.exists()]
        last_sign = max([record.started or 0.0, *(path.stat().st_mtime for path in files)])
        if time.time() - last_sign <= STARTS_WITHIN_S:
            return False
        last = self._reason(record)
        reason = f"its start wrote nothing for {STARTS_WITHIN_S / 60:.0f} min; last: {last}"
        self._store.change(record, wish="retry", reason=reason)
        return True

    def away(self, record: Record, reason: str) -> None:
        """Retries an experiment after a transient error; ends it after a day of them."""
        now = time.time()
        trained = record.state in AT_WORK and now - (record.started or now) > HOUR_S
        since = now if trained or not record.away_since else record.away_since
        tries = 0 if trained else record.away
        if now - since > AWAY_FOR_S:
            self._end(record, "FAILED", f"tried for {AWAY_FOR_S / HOUR_S:.0f} h; {reason}")
            return
        self._retry(
            record,
            reason,
            min(RETRY_AFTER_S * 2**tries, LONGEST_PAUSE_S),
            away_since=since,
            away=tries + 1,
        )

    def _failed(self, record: Record, code: int | None, message: str = "") -> None:
        reason = self._reason(record, message) or f"exit code {code}"
        if code == REFUSAL:
            self._end(record, "FAILED", reason)
        elif code in (os.EX_TEMPFAIL, None):
            self.away(record, reason)
        else:
            self._retry_or_end(record, reason)

    def _retry_or_end(self, record: Record, reason: str) -> None:
        """Retries an experiment after a failure, or ends it after too many."""
        now, steps = time.time(), read_status(self._store.folder(record.name)).get("env_steps")
        gets_no_further = steps is not None and steps <= record.failed_at_steps
        failures = [at for at in record.failures if gets_no_further or at > now - HOUR_S] + [now]
        if len(failures) >= MOST_FAILURES:
            how = "without getting further" if gets_no_further else "within an hour"
            self._end(record, "FAILED", f"failed {len(failures)} times {how}; {reason}")
        else:
            furthest = max(steps or 0, record.failed_at_steps)
            changes = {"failures": failures, "failed_at_steps": furthest, **NO_TRIES}
            self._retry(record, reason, RETRY_AFTER_S, **changes)

    def _retry(self, record: Record, reason: str, pause_s: float, **changes: object) -> None:
        self._say(record, f"failed, retry in {pause_s:.0f} s: {reason}")
        changes = {**changes, "not_before": time.time() + pause_s, "reason": reason}
        self._store.change(record, state="STARTING", job="", wish="", **changes)

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

    def _reason(self, record: Record, message: str = "") -> str:
        """Returns why the payload has ended: the reason in its status, or else its last line.

        Args:
            message: Ray's, if it has one to show instead of the last line.
        """
        folder = self._store.folder(record.name)
        status = read_status(folder)
        # Of a start it is only the progress.
        if status.get("reason") and status.get("state") != "STARTING":
            return str(status["reason"])
        if message:
            return " ".join(message.split())[:300]
        try:
            with open_file(folder / OUTPUT) as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - 4096))
                lines = file.read().decode(errors="replace").split("\n")
        except OSError as error:
            return f"{OUTPUT} cannot be read: {error.strerror}"
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    def _say(self, record: Record, text: str) -> None:
        print(f"{record.name}: {text}", flush=True)
