"""The queue: starts experiments as Ray jobs as the cluster has room, and follows them to their end.

What it knows is in the experiments' folders, so that it may be killed and started again at any
time. On SIGTERM all jobs write a checkpoint; the next start of this program continues them.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from typing import Any

import head_status
from cluster_room import Needs, Node
from cluster_settings import read_settings
from experiment_ends import STARTS_AN_HOUR, Ends
from experiment_record import ENV_RUNNERS, OUTPUT, STATUS, Record, read_status, replace_text
from experiment_store import Store
from journal_copy import JournalCopy
from places import CLUSTER
from ray_cluster import RayAwayError, RayCluster
from sharing import Claim, share
from worker_demand import usable_workers

POLL_S = 1.0
ASK_AGAIN_S = 30.0
CLOSING_S = 100.0
"""systemd kills what is left after TimeoutStopSec."""
WORKERS_TIMEOUT_S = float(os.environ.get("WORKERS_TIMEOUT_S", "120"))
"""A search keeps what it had at its start: after a boot it waits for its workers, which reconnect
after about 24 s. An evicted one may never return. A rehearsal waits less."""


def main() -> int:
    asked_to_stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: asked_to_stop.set())
    queue = Queue(Store(), RayCluster())
    problem = ""
    stopping_since = 0.0
    while True:
        try:
            trains, said = queue.step(closing=asked_to_stop.is_set()), ""
        except RayAwayError as error:
            # Jobs end with Ray.
            trains, said = False, f"Ray does not answer: {error}"
        if said != problem:
            problem = said
            print(said or "Ray answers again", flush=True)
        if asked_to_stop.is_set():
            stopping_since = stopping_since or time.monotonic()
            if not trains or time.monotonic() - stopping_since > CLOSING_S:
                return 0
            time.sleep(POLL_S)
        asked_to_stop.wait(POLL_S)


class Queue:
    """The experiments of a store, on a cluster."""

    def __init__(self, store: Store, cluster: RayCluster) -> None:
        self._store, self._cluster = store, cluster
        self._ends = Ends(store)
        self._starting: dict[str, Any] = {}
        """The processes that submit jobs, by the name of the experiment."""
        self._told_to_stop: set[str] = set()
        self._journal = JournalCopy(store)
        self._settles_until = time.monotonic() + WORKERS_TIMEOUT_S
        self._asked = 0, time.monotonic()
        """The workers that Ray's autoscaler was asked for, and when."""
        self._cpus_before = sum(node["cpus"] for node in head_status.nodes())

    def step(self, closing: bool) -> bool:
        """Follows what trains and starts what there is room for; returns whether anything trains.

        Raises:
            RayAwayError
        """
        self._journal.copy()
        # First: a process that has ended has submitted its job.
        submitted = {
            name: code for name, one in self._starting.items() if (code := one.poll()) is not None
        }
        (jobs, drivers), nodes = self._cluster.jobs(), self._cluster.nodes()
        for record in self._store.records():
            if record.live:
                self._follow(record, jobs, submitted, closing)
        for name in submitted:
            del self._starting[name]
        self._stop_strays(jobs)
        running = {one.submission_id for one in jobs.values() if not one.status.is_terminal()}
        if nodes and not closing:
            self._share(nodes, running)
            seen = {"time": time.time(), "nodes": nodes, "drivers": drivers}
            replace_text(CLUSTER, json.dumps(seen))
        return bool(running or self._starting)

    def _follow(self, record: Record, jobs: Any, submitted: dict[str, int], closing: bool) -> None:
        job = jobs.get(record.job)
        leaves = closing or bool(record.wish)
        if job is not None and not job.status.is_terminal():
            status = read_status(self._store.folder(record.name)) or {}
            if leaves:
                self._stop(record.job)
            elif record.state == "STARTING" and status.get("state") == "TRAINING":
                self._store.change(record, state="TRAINING", reason="", not_before=0.0)
        elif job is not None:
            self._ends.of_job(record, job.status, job.driver_exit_code, closing)
        elif record.name in self._starting and record.name not in submitted:
            if leaves:
                os.killpg(self._starting[record.name].pid, signal.SIGTERM)
        elif submitted.get(record.name):
            self._ends.of_start(record, submitted[record.name], closing)
        elif record.wish:
            self._ends.leave(record)

    def _stop(self, job: str) -> None:
        if job not in self._told_to_stop:
            self._cluster.stop(job)
            self._told_to_stop.add(job)

    def _stop_strays(self, jobs: Any) -> None:
        """Stops jobs that no experiment has any more."""
        known = {record.job for record in self._store.records() if record.live}
        for name, job in jobs.items():
            if name not in known and not job.status.is_terminal():
                self._stop(name)

    def _share(self, nodes: list[dict[str, Any]], running: set[str]) -> None:
        records = [record for record in self._store.records() if not record.over]
        claims = [self._claim(record, running) for record in records]
        self._ask_for_workers(claims, nodes)
        cpus = sum(node["cpus"] for node in nodes)
        if cpus < self._cpus_before and time.monotonic() < self._settles_until:
            claims = _without_searches(claims)
        shares = share(claims, [Node(node["cpus"], node["gpus"]) for node in nodes])
        waiting = 0
        for record in records:
            number = shares.env_runners.get(record.name)
            trains = any(claim.name == record.name and claim.running for claim in claims)
            if record.name in shares.requeued:
                self._store.change(record, wish=record.wish or "requeue")
            elif number is None:
                self._waits(record, waiting, list(shares.env_runners))
                waiting += 1
            elif not trains:
                self._start(record, number)
            elif not record.needs.get("search") and number not in (0, record.num_env_runners):
                replace_text(self._store.folder(record.name) / ENV_RUNNERS, str(number))
                self._store.change(record, num_env_runners=number)

    def _ask_for_workers(self, claims: list[Claim], nodes: list[dict[str, Any]]) -> None:
        settings = read_settings()
        if settings is None or settings.scaling != "demand":
            return
        count, (before, when) = usable_workers(claims, nodes, settings), self._asked
        # A restarted GCS has forgotten it.
        if count != before or time.monotonic() - when > ASK_AGAIN_S:
            self._cluster.request_workers(count)
            self._asked = count, time.monotonic()

    def _claim(self, record: Record, running: set[str]) -> Claim:
        trains = record.job in running or record.name in self._starting
        # One that has failed keeps its place until it is tried again.
        trains = trains or record.not_before > time.time()
        number = record.num_env_runners or 0
        return Claim(record.name, Needs(**record.needs), trains, number, record.now)

    def _waits(self, record: Record, before: int, training: list[str]) -> None:
        beside = f"no room beside {', '.join(training)}" if training else "no room on the nodes"
        reason = "waits for those before it" if before else beside
        if record.reason != reason:
            self._store.change(record, reason=reason)

    def _start(self, record: Record, number: int) -> None:
        if self._ends.too_often(record):
            return
        folder = self._store.folder(record.name)
        now = time.time()
        # With the id of a start that this program did not see the end of, Ray takes one of the two.
        job = record.job or f"{record.key}-{now:.0f}"
        changes = {"state": "STARTING", "reason": "", "job": job, "num_env_runners": number}
        starts = [*record.starts[1 - STARTS_AN_HOUR :], now]
        started = self._store.change(
            record,
            started=now,
            attempts=record.attempts + 1,
            starts=starts,
            not_before=0.0,
            **changes,
        )
        if started is None or started.job != job or started.wish:
            return
        (folder / STATUS).unlink(missing_ok=True)
        replace_text(folder / ENV_RUNNERS, str(number))
        print(f"{record.name}: starts with {number} env runners", flush=True)
        self._starting[record.name] = self._cluster.start(folder, job, number, folder / OUTPUT)


def _without_searches(claims: list[Claim]) -> list[Claim]:
    """Returns the claims without the first search that waits and those that wait behind it."""
    for place, claim in enumerate(claims):
        if claim.needs.search and not claim.running:
            return claims[:place] + [one for one in claims[place:] if one.running]
    return claims


if __name__ == "__main__":
    sys.exit(main())
