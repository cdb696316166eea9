"""The act that trains an environment with a window, whose code no machine has."""

from __future__ import annotations

import json
from collections import Counter
from functools import partial

from payload.parcel.experiment_files import experiment_name
from rehearsal.drivers.pulumi_cli import PulumiCli
from rehearsal.machines.machine import Machine, all_machines
from rehearsal.paths import ROOT
from rehearsal.scenario.context import EXPERIMENT as BEFORE
from rehearsal.scenario.context import Context
from rehearsal.scenario.outcomes import UnexpectedError
from rehearsal.scenario.training_watch import AS_RAY, ENV_RUNNER, PYTHON, until

EXPERIMENT = ROOT / "experiments/room/room.yaml"
PACKAGES = ["xvfb", "xauth"]
"""In the stack's aptPackages from its first `up`: another list would replace every machine."""
NEEDS = f"apt_packages {', '.join(PACKAGES)} on every machine"
MISSING = "openjdk-17-jre-headless"
REFUSED = f"apt_packages: {MISSING}: not installed on this machine"
LEARNS_IN_S = 120.0
FOLDERS = "/var/lib/volley/experiments"
LACKING = f"env: CartPole-v1\napt_packages: [{MISSING}]\nstop: {{training_iteration: 1}}\n"


def own_environment(context: Context) -> str:
    """Its code, a package of Python, data and a variable reach the workers; apt's are there."""
    _is_refused(context.head)
    # The head has a CPU, so that one of two env runners is on a worker.
    change = {"experiment": str(EXPERIMENT), "numEnvRunners": "2"}
    if isinstance(context.driver, PulumiCli):
        preview = context.driver.preview({**context.config, **change})
        if NEEDS not in " ".join(preview.split()):
            raise UnexpectedError(f"the preview does not say {NEEDS}: {preview}")
    context.up_with_new_run(**change)
    found: dict[str, int] = {}

    def is_there() -> bool:
        found.update(_windowed_env_runners())
        return any(name != "head" for name in found)

    until(is_there, 60, "an env runner with an X server of its own on a worker")
    seconds = until(partial(_has_learned, context.head), LEARNS_IN_S, "the goal of the experiment")
    places = ", ".join(f"{number} on {name}" for name, number in sorted(found.items()))
    return f"env runners with an X server: {places}; learned {seconds:.0f} s later"


def _is_refused(head: Machine) -> None:
    """Trains on the cluster an experiment that needs what its machines lack."""
    head.run("install", "-D", "-m", "0644", "/dev/stdin", "/tmp/lacking.yaml", text=LACKING)
    train = [PYTHON, "-m", "payload", "train", "/tmp/lacking.yaml", "--address", "auto"]
    train += ["--results", "/tmp/results"]
    done = head.run(*AS_RAY, f"PYTHONPATH={FOLDERS}/{experiment_name(BEFORE)}", *train, check=False)
    if done.returncode != 2 or REFUSED not in done.stderr:
        raise UnexpectedError(f"exit code {done.returncode}, not refused: {done.stderr}")


def _has_learned(head: Machine) -> bool:
    status = json.loads(
        head.run("cat", f"{FOLDERS}/{experiment_name(EXPERIMENT)}/status.json").stdout
    )
    if status["state"] not in ("STARTING", "TRAINING", "FINISHED"):
        raise UnexpectedError(f"the training has {status}")
    return bool(status["state"] == "FINISHED")


def _windowed_env_runners() -> Counter[str]:
    """Counts each machine's env runners whose xvfb-run has an X server."""
    found: Counter[str] = Counter()
    for machine in all_machines():
        lines = machine.run("ps", "-eo", "pid=,ppid=,args=").stdout.splitlines()
        processes = [(line.split()[1], line) for line in lines]
        servers = {parent for parent, line in processes if " Xvfb :" in line}
        found.update(
            machine.name
            for parent, line in processes
            if ENV_RUNNER.search(line) and parent in servers
        )
    return found
