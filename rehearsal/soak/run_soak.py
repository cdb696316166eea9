"""The soak, in order: a cluster, an hour of faults, the end of all experiments, and sleep."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import replace
from random import Random

from payload.errors import first_line
from rehearsal.drivers.pulumi_cli import PulumiCli
from rehearsal.host_paths import ROOT
from rehearsal.host_shell import CommandError
from rehearsal.machines.nspawn_machine import all_machines
from rehearsal.scenario import head_commands, stack_changes
from rehearsal.scenario.context import IMAGE_WITH_ENVIRONMENT, Context
from rehearsal.scenario.laptop import Volley
from rehearsal.scenario.machine_faults import azure_workers
from rehearsal.scenario.outcomes import Outcomes, UnexpectedError
from rehearsal.scenario.training_watch import until
from rehearsal.soak import invariants, vital_signs
from rehearsal.soak.faults import Cluster, Fault, draw
from rehearsal.soak.laptop_faults import laptop_faults
from rehearsal.soak.machine_faults import machine_faults_of_soak
from rehearsal.soak.process_faults import process_faults
from rehearsal.soak.service_faults import service_faults
from rehearsal.soak.vital_signs import VitalSigns

EXPERIMENT = ROOT / "rehearsal/soak/soak_experiment.yaml"
WORKERS = 2
UNFINISHED = 3
"""How many experiments there are at any time, so that the queue is never empty."""
RPC_FAILURES = {
    method: {"num_failures": 20, "req_failure_prob": 1, "resp_failure_prob": 1}
    for method in (
        "NodeManagerService.grpc_client.RequestWorkerLease",
        "CoreWorkerService.grpc_client.PushTask",
        "CoreWorkerService.grpc_client.GetObjectStatus",
    )
}
"""In each of Ray's processes a hundredth of these requests or of their answers is lost, at most 20.

https://github.com/ray-project/ray/blob/master/src/ray/rpc/rpc_chaos.cc
"""
EVERY_S = 60.0
SLEEPS_AFTER_MINUTES = 5
ENDS_S = 1800.0
"""After the last fault all experiments finish within this time."""
ASLEEP_S = 60.0 * SLEEPS_AFTER_MINUTES + 240.0


def run_soak(context: Context, outcomes: Outcomes, seed: int, minutes: float) -> list[str]:
    """Runs the soak; if `up` fails, it has no cluster."""
    if not isinstance(context.driver, PulumiCli):
        raise UnexpectedError("`volley` needs the pulumi CLI, which is not on the PATH")
    act = outcomes.act
    outcomes.say(f"seed {seed}")
    if not act("up", f"{WORKERS} workers, the first experiment trains", _up, context):
        return []
    volley = Volley(context.laptop, context.driver.project)
    soak = Soak(Cluster(context, volley, Random(seed)), outcomes)
    act("faults", f"one a minute for {minutes:g} min; no experiment fails", soak.happen, minutes)
    act("all finish", "each exactly once", soak.all_finish)
    act("runs", "one finished run for each", soak.runs)
    act("points", "none twice, no gap", invariants.points_are_complete, context)
    act("checkpoints", "Blob has the newest", invariants.checkpoints_are_saved, context)
    act("vital signs", "memory, files and disk do not grow", soak.vital_signs)
    act("processes", "no unknown process or machine is left", soak.nothing_is_left)
    act("sleep", f"after {SLEEPS_AFTER_MINUTES} idle min no machine runs", soak.sleeps)
    act("destroy", "only the results are left", stack_changes.destroy, context)
    return []


def all_faults() -> list[Fault]:
    return [*process_faults(), *machine_faults_of_soak(), *service_faults(), *laptop_faults()]


def _up(context: Context) -> str:
    variables = json.loads(context.config["environmentVariables"])
    variables["RAY_testing_rpc_failure"] = json.dumps(RPC_FAILURES)
    return stack_changes.up(
        context,
        environmentVariables=json.dumps(variables),
        image=IMAGE_WITH_ENVIRONMENT,
        experiment=str(EXPERIMENT),
        minWorkers="0",
        maxWorkers=str(WORKERS),
        idleMinutes="2",
        sleepAfterMinutes=str(SLEEPS_AFTER_MINUTES),
    )


class Soak:
    def __init__(self, cluster: Cluster, outcomes: Outcomes) -> None:
        self._cluster = cluster
        self._say = outcomes.say
        self._faults = all_faults()
        self._happening: dict[str, threading.Thread] = {}
        """By what is broken."""
        self._submitted = {EXPERIMENT.stem.replace("_", "-")}
        self._signs: list[VitalSigns] = []
        self._violated: list[str] = []
        self._happened, self._not_happened = 0, 0

    def happen(self, minutes: float) -> str:
        """Lets a fault happen every minute; keeps the queue full and looks at the cluster."""
        end = time.monotonic() + 60 * minutes
        while time.monotonic() < end:
            began = time.monotonic()
            self._begin_fault()
            self._keep_busy()
            self._look()
            time.sleep(max(0.0, began + EVERY_S - time.monotonic()))
        for thread in self._happening.values():
            thread.join()
        if self._violated:
            raise UnexpectedError("; ".join(self._violated))
        return f"{self._happened} faults, {self._not_happened} without anything to break"

    def all_finish(self) -> str:
        names: set[str] = set()

        def finished() -> bool:
            nonlocal names
            names = self._submitted - self._cluster.volley.finished()
            return not names

        try:
            seconds = until(finished, ENDS_S, "all finish", pause_s=5.0)
        except TimeoutError:
            states = self._cluster.volley.states()
            left = ", ".join(f"{name} {states.get(name)}" for name in sorted(names))
            raise UnexpectedError(f"after {ENDS_S:.0f} s: {left}") from None
        return f"{len(self._submitted)} experiments, {seconds:.0f} s after the last fault"

    def runs(self) -> str:
        experiments = self._cluster.volley.experiments().items()
        ids = {name: str(record["status"]["mlflow_run"]) for name, record in experiments}
        if ids.keys() != self._submitted or len(set(ids.values())) != len(ids):
            raise UnexpectedError(f"{len(ids)} experiments for {len(self._submitted)} submitted")
        return invariants.each_has_one_run(self._cluster.context, ids)

    def vital_signs(self) -> str:
        if problems := vital_signs.growing(self._signs):
            raise UnexpectedError("; ".join(problems))
        return vital_signs.summary(self._signs)

    def nothing_is_left(self) -> str:
        training = self._cluster.context.training
        until(lambda: not training.processes(), 60, "no driver or env runner is left", pause_s=2)
        names = {machine.name for machine in all_machines()}
        if names != (azure := {"head", *azure_workers()}):
            raise UnexpectedError(f"machines: {sorted(names)}; Azure's: {sorted(azure)}")
        return f"machines: {', '.join(sorted(names))}"

    def sleeps(self) -> str:
        head = self._cluster.context.head
        seconds = until(lambda: head.power == "off", ASLEEP_S, "the head is deallocated", pause_s=2)
        if left := azure_workers():
            raise UnexpectedError(f"left: {', '.join(sorted(left))}")
        return f"the head was off after {seconds:.0f} s"

    def _begin_fault(self) -> None:
        self._happening = {
            what: thread for what, thread in self._happening.items() if thread.is_alive()
        }
        fault = draw(self._faults, self._happening, self._cluster.random)
        if fault is None:
            return
        cluster = replace(self._cluster, random=Random(self._cluster.random.random()))
        thread = threading.Thread(target=self._let_happen, args=(fault, cluster), daemon=True)
        self._happening[fault.breaks] = thread
        thread.start()

    def _let_happen(self, fault: Fault, cluster: Cluster) -> None:
        self._say(f"  {fault.name} ...")
        try:
            seen = fault.happen(cluster)
        except Exception as error:  # What it would break may be broken already.
            self._not_happened += 1
            self._say(f"  {fault.name}: did not happen: {first_line(error)}")
        else:
            self._happened += 1
            self._say(f"  {fault.name}: {seen}")

    def _keep_busy(self) -> None:
        """Submits an experiment if there are few; a failed attempt is repeated a minute later.

        The head may have received it all the same: then it must not be there twice.
        """
        states = self._cluster.volley.states()
        over = sum(state == "FINISHED" for state in states.values())
        if not states or len(self._submitted) - over >= UNFINISHED:
            return
        with suppress(UnexpectedError, subprocess.TimeoutExpired):
            self._cluster.volley.type("submit", str(EXPERIMENT), "--name", self._next_name)
            self._submitted.add(self._next_name)

    @property
    def _next_name(self) -> str:
        return f"soak-{len(self._submitted)}"

    def _look(self) -> None:
        """Looks at what must hold at any time."""
        try:
            states = head_commands.states(self._cluster.context.head)
            self._signs.append(vital_signs.take(self._cluster.context.head))
        except (CommandError, OSError, subprocess.TimeoutExpired):
            return  # The head is off.
        failed = {name for name, state in states.items() if state == "FAILED"}
        for name in sorted(failed):
            if f"{name} failed" not in self._violated:
                self._violated.append(f"{name} failed")
                self._say(f"  VIOLATED: {name} failed")
        if unknown := set(states) - self._submitted - {self._next_name}:
            self._violated.append(f"unknown: {sorted(unknown)}")
