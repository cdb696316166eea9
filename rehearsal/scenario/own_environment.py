"""The act that trains a user's own environment, which needs a window and brings its own code."""

from __future__ import annotations

from collections import Counter
from functools import partial

from payload.parcel import experiment_name
from rehearsal.drivers.pulumi_cli import PulumiCli
from rehearsal.host_paths import ROOT
from rehearsal.machines.nspawn_machine import Machine, all_machines
from rehearsal.scenario.context import EXPERIMENT as BEFORE
from rehearsal.scenario.context import Context
from rehearsal.scenario.head_commands import AS_RAY, EXPERIMENTS, PYTHON, run_status
from rehearsal.scenario.outcomes import UnexpectedError
from rehearsal.scenario.training_watch import ENV_RUNNER, until

EXPERIMENT = ROOT / "experiments/room/room.yaml"
APT_PACKAGES = ["xvfb", "xauth"]
"""The image has them, since every machine would take 10 s to install them."""
INSTALLED_AT_BOOT = "tree"
STACK_PACKAGES = [*APT_PACKAGES, INSTALLED_AT_BOOT]
"""The stack's aptPackages from its first `up` on: a change would replace every machine."""
NEEDS = f"apt_packages {', '.join(APT_PACKAGES)} on every machine"
MISSING = "openjdk-17-jre-headless"
REFUSED = f"apt_packages: {MISSING}: not installed on this machine"
LEARNS_IN_S = 120.0
LACKING = f"env: CartPole-v1\napt_packages: [{MISSING}]\nstop: {{training_iteration: 1}}\n"


def own_environment(context: Context) -> str:
    """Trains in it: workers have its code, Python and apt packages, data and variable."""
    for machine in all_machines():
        machine.run(INSTALLED_AT_BOOT, "--version")
    _check_refusal(context.head)
    # The head has room for one env runner, so the other is on a worker.
    change = {"experiment": str(EXPERIMENT), "numEnvRunners": "2"}
    if isinstance(context.driver, PulumiCli):
        preview = context.driver.preview({**context.config, **change})
        if NEEDS not in " ".join(preview.split()):
            raise UnexpectedError(f"the preview does not mention {NEEDS}: {preview}")
    context.up_with_new_run(**change)
    numbers: dict[str, int] = {}

    def one_is_on_a_worker() -> bool:
        numbers.update(_windowed_env_runners())
        return any(name != "head" for name in numbers)

    what = "an env runner with its own X server on a worker"
    until(one_is_on_a_worker, 60, what, pause_s=0.5)
    seconds = until(partial(_has_learned, context.head), LEARNS_IN_S, "the goal of the experiment")
    places = ", ".join(f"{number} on {name}" for name, number in sorted(numbers.items()))
    return f"env runners with an X server: {places}; learned {seconds:.0f} s later"


def _check_refusal(head: Machine) -> None:
    """Starts an experiment on the cluster that needs an apt package which its machines lack."""
    head.run("install", "-D", "-m", "0644", "/dev/stdin", "/tmp/lacking.yaml", text=LACKING)
    train = [PYTHON, "-m", "payload", "train", "/tmp/lacking.yaml", "--address", "auto"]
    train += ["--results", "/tmp/results"]
    path = f"PYTHONPATH={EXPERIMENTS}/{experiment_name(BEFORE)}"
    done = head.run(*AS_RAY, path, *train, check=False)
    if done.returncode != 2 or REFUSED not in done.stderr:
        raise UnexpectedError(f"exit code {done.returncode}, not refused: {done.stderr}")


def _has_learned(head: Machine) -> bool:
    status = run_status(head, experiment_name(EXPERIMENT))
    if status["state"] not in ("STARTING", "TRAINING", "FINISHED"):
        raise UnexpectedError(f"status of the training: {status}")
    return bool(status["state"] == "FINISHED")


def _windowed_env_runners() -> Counter[str]:
    """Counts each machine's env runners whose xvfb-run has an X server."""
    numbers: Counter[str] = Counter()
    for machine in all_machines():
        lines = machine.run("ps", "-eo", "pid=,ppid=,args=").stdout.splitlines()
        processes = [(line.split()[1], line) for line in lines]
        servers = {parent for parent, line in processes if " Xvfb :" in line}
        numbers.update(
            machine.name
            for parent, line in processes
            if ENV_RUNNER.search(line) and parent in servers
        )
    return numbers
