"""The act in which the laptop operates the cluster with the command `volley`, over SSH."""

from __future__ import annotations

from pathlib import Path

from payload.parcel import experiment_name
from rehearsal.drivers.pulumi_cli import PulumiCli
from rehearsal.host_paths import ROOT
from rehearsal.scenario import head_commands
from rehearsal.scenario.context import Context
from rehearsal.scenario.outcomes import UnexpectedError
from rehearsal.scenario.training_watch import until
from rehearsal.scenario.volley_command import Volley

SECOND = "second"
EXPERIMENT = ROOT / "rehearsal/scenario/second_experiment.yaml"
STARTS_IN_S = 180.0


def operate(context: Context, driver: PulumiCli) -> str:
    """Submits a second experiment, reads its log, stops and resumes it, and pulls its results."""
    volley = Volley(context.laptop, driver.project)
    first = experiment_name(Path(context.config["experiment"]))
    volley.ask("submit", str(EXPERIMENT), "--name", SECOND)
    try:
        return _operate(context, volley, first)
    except BaseException:
        volley.ask("stop", SECOND)  # The following acts need the whole cluster.
        raise


def _operate(context: Context, volley: Volley, first: str) -> str:
    seconds = _wait_until_both_train(context, first)
    if volley.training() != {first, SECOND}:
        raise UnexpectedError("volley status does not show two experiments that train")
    if "First learner update" not in volley.type("logs", SECOND, "--lines", "200"):
        raise UnexpectedError(f"volley logs {SECOND} does not show its first learner update")
    volley.ask("stop", SECOND)
    pulled = volley.ask("pull", SECOND)
    volley.ask("resume", SECOND)
    _wait_until_both_train(context, first)
    volley.ask("stop", SECOND)
    pulled_again = volley.ask("pull", SECOND)
    runs = list((volley.folder / "results" / SECOND / "runs").iterdir())
    if len(runs) != 1 or not any(runs[0].glob("checkpoints/checkpoint_*")):
        raise UnexpectedError(f"pulled {', '.join(run.name for run in runs) or 'nothing'}")
    if volley.training() != {first}:
        raise UnexpectedError(f"{first} does not train any more")
    return (
        f"two trained {seconds:.0f} s after the command; "
        f"pulled {pulled['files']} files, then {pulled_again['files']} new ones"
    )


def _wait_until_both_train(context: Context, first: str) -> float:
    """Waits by reading the head's disk: `volley status` would take the CPUs from the training."""

    def both_train() -> bool:
        states = head_commands.states(context.head)
        return {states.get(first), states.get(SECOND)} == {"TRAINING"}

    return until(both_train, STARTS_IN_S, f"{first} and {SECOND} train side by side")
