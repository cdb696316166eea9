"""The queue's step: it starts experiments that fit and follows them to their end."""

import math
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from ray.job_submission import JobDetails

from ..cluster_settings import read_settings
from ..files import replace
from ..room import Needs, Node
from .cluster_state import ClusterState, RayNode, read_cluster_state
from .journal import JournalCopy
from .notices import Notices
from .problems import Problems
from .ray_api import RayCluster
from .record import AT_WORK, ENV_RUNNERS, OUTPUT, STATE, STATUS, Record, read_status
from .restart_rules import KEEPS_ITS_PLACE, Ends, earlier_tries, pauses
from .sharing import Claim, fits, share, usable_workers
from .store import Store

Jobs = Mapping[str, JobDetails]

REQUEST_AGAIN_S = 30.0
WORKERS_TIMEOUT_S = float(os.environ.get("WORKERS_TIMEOUT_S", "120"))
"""A search keeps the env runners that it starts with, so after a boot it waits for its workers.
They reconnect after about 24 s; an evicted worker may never return. A rehearsal waits less."""
QUIET_S = 4.0
"""Ray is asked this often while nothing changes."""


class Queue:
    """The experiments of a store, on a cluster."""

    def __init__(self, store: Store, cluster: RayCluster) -> None:
        self._store, self._cluster = store, cluster
        self._ends = Ends(store)
        self._starting: dict[str, subprocess.Popen[bytes]] = {}
        """The processes that submit jobs, by the name of the experiment."""
        self._told_to_stop: set[str] = set()
        self._waits_for_machines: dict[tuple[str, float], float] = {}
        """Since when, by the name and the submission of the experiment."""
        self._problems = Problems(store)
        self._journal = JournalCopy(store)
        self._notices = Notices(store)
        self._seen: dict[str, tuple[int, object]] = {}
        """The experiments' files before the last step: see `_look`."""
        self._settled, self._stepped_at = False, 0.0
        self._settles_until = time.monotonic() + WORKERS_TIMEOUT_S
        self._requested_workers, self._requested_at = 0, time.monotonic()
        self._cpus_before = sum(node.cpus for node in read_cluster_state().nodes)

    @property
    def is_starting(self) -> bool:
        """Whether a job is being submitted; only this process knows how that ends."""
        return bool(self._starting)

    def is_quiet(self) -> bool:
        """Whether a step would change nothing, as far as the files of the experiments tell.

        It copies their output to the journal.
        """
        self._journal.copy()
        recent = time.monotonic() - self._stepped_at < QUIET_S
        return self._settled and recent and self._look() == self._seen

    def step(self, closing: bool) -> bool:
        """Follows the experiments that train, starts those that fit; returns whether any trains.

        A queue that closes has to wait for what is being told, too.

        An error of one experiment becomes its reason, and the others continue.

        Raises:
            RayAwayError: Ray or its dashboard does not answer.
        """
        self._journal.copy()
        self._notices.look()  # Before Ray is asked, which may be away.
        self._problems.begin_step()
        self._settled, self._seen, self._stepped_at = False, self._look(), time.monotonic()
        # Before the list of jobs: a process that has ended has submitted its job.
        submitted = {
            name: code
            for name, process in self._starting.items()
            if (code := process.poll()) is not None
        }
        (jobs, drivers), nodes = self._cluster.jobs(), self._cluster.nodes()
        for name in self._store.interrupted():
            with self._problems.of(name):
                self._store.repair(name)
        for record in self._store.records():
            if record.live:
                with self._problems.of(record.name):
                    self._follow(record, jobs, submitted, closing)
        for name in submitted:
            if name not in self._problems:
                del self._starting[name]
        self._stop_strays(jobs)
        running = {name for name, job in jobs.items() if not job.status.is_terminal()}
        if nodes and not closing:
            self._share(nodes, running)
            ClusterState(time.time(), nodes, drivers).write()
        self._problems.end_step()
        self._settled = bool(nodes) and not (self._starting or self._problems or closing)
        for record in self._store.records():
            told = self._seen.get(record.name, (0, None))[1]
            if record.live and (told not in AT_WORK or record.state != told or record.wish):
                self._settled = False
        return bool(running or self._starting or (closing and self._notices.hold()))

    def _look(self) -> dict[str, tuple[int, object]]:
        """Returns the time of each experiment's record, and the state that its payload tells."""
        looks = {}
        for path in self._store.root.glob(f"[a-z0-9]*/{STATE}"):
            with suppress(OSError):
                changed = path.stat().st_mtime_ns
                looks[path.parent.name] = (changed, read_status(path.parent).get("state"))
        return looks

    def _follow(self, record: Record, jobs: Jobs, submitted: dict[str, int], closing: bool) -> None:
        job = jobs.get(record.job)
        leaves = closing or bool(record.wish)
        if job is not None and not job.status.is_terminal():
            status = read_status(self._store.folder(record.name))
            if leaves:
                self._stop(record.job)
            elif record.state == "STARTING" and status.get("state") in AT_WORK:
                self._store.change(record, state=status["state"], reason="", not_before=0.0)
            elif record.state == "STARTING":
                self._ends.stuck(record)
        elif job is not None:
            self._ends.of_job(record, job, closing)
        elif record.name in self._starting and record.name not in submitted:
            if leaves or self._ends.stuck(record):
                os.killpg(self._starting[record.name].pid, signal.SIGTERM)
        elif submitted.get(record.name):
            self._ends.of_start(record, submitted[record.name], closing)
        elif record.wish:
            self._ends.leave(record)

    def _stop(self, job: str) -> None:
        if job not in self._told_to_stop:
            self._cluster.stop(job)
            self._told_to_stop.add(job)

    def _stop_strays(self, jobs: Jobs) -> None:
        """Stops jobs that belong to no experiment any more."""
        wanted = {record.job for record in self._store.records() if record.live}
        for name, job in jobs.items():
            if name not in wanted and not job.status.is_terminal():
                with self._problems.of(name):
                    self._stop(name)

    def _share(self, nodes: Sequence[RayNode], running: set[str]) -> None:
        records, claims = [], []
        for record in self._store.records():
            if not record.over and not (pauses(record) and record.away > KEEPS_ITS_PLACE):
                with self._problems.of(record.name):
                    claims.append(self._claim(record, running))
                    records.append(record)
        self._request_workers(claims, nodes)
        cpus = sum(node.cpus for node in nodes)
        if cpus < self._cpus_before and time.monotonic() < self._settles_until:
            claims = _without_searches(claims)
        shares = share(claims, [Node(node.cpus, node.gpus) for node in nodes])
        waiting = 0
        for record in records:
            number = shares.env_runners.get(record.name)
            trains = any(claim.name == record.name and claim.running for claim in claims)
            with self._problems.of(record.name):
                if record.name in shares.requeued:
                    self._store.change(record, wish=record.wish or "requeue")
                elif number is None:
                    waiting += 1
                    self._waits(record, waiting - 1, list(shares.env_runners), nodes)
                elif not trains:
                    self._start(record, number)
                elif not record.needs.get("search") and number not in (0, record.num_env_runners):
                    replace(self._store.folder(record.name) / ENV_RUNNERS, str(number).encode())
                    self._store.change(record, num_env_runners=number)

    def _request_workers(self, claims: list[Claim], nodes: Sequence[RayNode]) -> None:
        settings = read_settings()
        if settings is None or settings.scaling != "demand":
            return
        count, now = usable_workers(claims, nodes, settings), time.monotonic()
        # A restarted GCS has forgotten the request.
        if count != self._requested_workers or now - self._requested_at > REQUEST_AGAIN_S:
            self._cluster.request_workers(count)
            self._requested_workers, self._requested_at = count, now

    def _claim(self, record: Record, running: set[str]) -> Claim:
        trains = record.job in running or record.name in self._starting
        # A failed experiment keeps its place until it is retried.
        trains = trains or pauses(record)
        number = record.num_env_runners or 0
        return Claim(record.name, Needs(**record.needs), trains, number, record.now)

    def _waits(
        self, record: Record, before: int, training: list[str], nodes: Sequence[RayNode]
    ) -> None:
        names = ", ".join(training)
        room = f"waiting for CPUs or GPUs in use by {names}" if names else "no room on the nodes"
        reason = "waiting for its turn" if before else room
        key = (record.name, record.submitted)
        if before or fits(Needs(**record.needs), [Node(node.cpus, node.gpus) for node in nodes]):
            self._waits_for_machines.pop(key, None)
        else:
            since = self._waits_for_machines.setdefault(key, time.monotonic())
            if time.monotonic() - since > (record.machines_timeout_s or math.inf):
                self._ends.without_machines(record)
                return
        if record.reason != reason:
            self._store.change(record, reason=reason)

    def _start(self, record: Record, number: int) -> None:
        self._waits_for_machines.pop((record.name, record.submitted), None)
        if self._ends.ended_unseen(record):
            return
        folder = self._store.folder(record.name)
        replace(folder / ENV_RUNNERS, str(number).encode())
        now = time.time()
        # An earlier queue may have submitted this start already: Ray accepts a job's id once.
        job = record.job or f"{record.key}-{now * 1000:.0f}"
        started = self._store.change(
            record,
            state="STARTING",
            reason="",
            job=job,
            num_env_runners=number,
            started=now,
            attempts=record.attempts + 1,
            not_before=0.0,
            **earlier_tries(record, now),
        )
        if started is None or started.job != job or started.wish:
            return
        (folder / STATUS).unlink(missing_ok=True)
        env_runners = "" if record.script else f" with {number} env runners"
        print(f"{record.name}: starting{env_runners}", flush=True)
        try:
            process = self._cluster.start(folder, job, number, folder / OUTPUT)
        except OSError as error:
            self._ends.away(started, str(error))
        else:
            self._starting[record.name] = process


def _without_searches(claims: list[Claim]) -> list[Claim]:
    """Returns the claims without the first search that waits and those that wait behind it."""
    for place, claim in enumerate(claims):
        if claim.needs.search and not claim.running:
            return claims[:place] + [later for later in claims[place:] if later.running]
    return claims
