"""Faults of the laptop: it is switched off in the middle of a verb, or repeats `make up`."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from functools import partial

from rehearsal.drivers.pulumi_cli import PulumiCli
from rehearsal.scenario.context import Context
from rehearsal.scenario.outcomes import UnexpectedError
from rehearsal.soak.faults import Cluster, Fault

VERBS = ("status", "logs", "pull", "cost", "stop")
WORKS_S = (0.2, 6.0)
REPEATED_S = 900.0
"""Whatever is broken, the repeated command succeeds within this time."""
PAUSE_S = 10.0


def laptop_faults() -> list[Fault]:
    verbs = [Fault(f"laptop killed in {verb}", "laptop", partial(killed, verb)) for verb in VERBS]
    return [*verbs, Fault("make up again", "laptop", up_again)]


def killed(verb: str, cluster: Cluster) -> str:
    """Kills a verb after a moment, then repeats it; resumes an experiment that it stopped."""
    words = [verb]
    if verb in {"logs", "pull", "stop"}:
        names = [name for name, state in cluster.volley.states().items() if state != "STOPPED"]
        if not names:
            raise UnexpectedError("there is no experiment")
        words.append(cluster.random.choice(names))
    process = cluster.volley.begin(*words)
    time.sleep(cluster.random.uniform(*WORKS_S))
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    repeat(cluster, *words)
    if verb == "stop" and cluster.volley.states().get(words[1]) == "STOPPED":
        repeat(cluster, "resume", words[1])
    return " ".join(words)


def up_again(cluster: Cluster) -> str:
    pulumi = driver(cluster.context)
    end = time.monotonic() + REPEATED_S
    while error := pulumi.make_up().error:
        if time.monotonic() > end:
            raise UnexpectedError(error)
        time.sleep(PAUSE_S)
    return "it succeeded"


def repeat(cluster: Cluster, *words: str) -> str:
    """Runs a verb until it succeeds; returns what it prints."""
    end = time.monotonic() + REPEATED_S
    while True:
        try:
            return cluster.volley.type(*words)
        except (UnexpectedError, subprocess.TimeoutExpired):
            if time.monotonic() > end:
                raise
            time.sleep(PAUSE_S)


def driver(context: Context) -> PulumiCli:
    assert isinstance(context.driver, PulumiCli)
    return context.driver
