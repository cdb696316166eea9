"""The act in which the laptop operates the cluster by the command `volley`, over SSH."""

from __future__ import annotations

from pathlib import Path

from payload.parcel.experiment_files import experiment_name
from rehearsal.drivers.pulumi_cli import PulumiCli
from rehearsal.paths import ROOT
from rehearsal.scenario.context import Context
from rehearsal.scenario.outcomes import UnexpectedError
from rehearsal.scenario.training_watch import until
from rehearsal.scenario.volley import Volley

SECOND = "second"
EXPERIMENT = ROOT / "rehearsal/scenario/second_experiment.yaml"
STARTS_IN_S = 180.0


def operate(context: Context, driver: PulumiCli) -> str:
    """Submits a second experiment, follows it, stops and resumes it, and pulls what it has made."""
    volley = Volley(context.laptop, driver.project)
    first = experiment_name(Path(context.config["experiment"]))
    volley.ask("submit", str(EXPERIMENT), "--name", SECOND)
    try:
        return _operate(volley, first)
    finally:
        volley.ask("stop", SECOND)  # The acts that follow train alone.


def _operate(volley: Volley, first: str) -> str:
    trains = f"{first} and {SECOND} train side by side"
    seconds = until(lambda: training(volley) == {first, SECOND}, STARTS_IN_S, trains)
    if "Training started after" not in volley.type("logs", SECOND, "--lines", "200"):
        raise UnexpectedError(f"volley logs {SECOND} does not show its first learner update")
    volley.ask("stop", SECOND)
    stopped = volley.ask("pull", SECOND)
    volley.ask("resume", SECOND)
    until(lambda: SECOND in training(volley), STARTS_IN_S, f"{SECOND} trains again")
    volley.ask("stop", SECOND)
    continued = volley.ask("pull", SECOND)
    runs = list((volley.folder / "results" / SECOND / "runs").iterdir())
    if len(runs) != 1 or not any(runs[0].glob("checkpoints/checkpoint_*")):
        raise UnexpectedError(f"pulled {', '.join(run.name for run in runs) or 'nothing'}")
    if training(volley) != {first}:
        raise UnexpectedError(f"{first} does not train any more")
    pulled = f"{stopped['files']} files, then {continued['files']} new ones"
    return f"two trained {seconds:.0f} s after the command; pulled {pulled}"


def training(volley: Volley) -> set[str]:
    """Returns the names of the experiments that train."""
    return {name for name, one in volley.experiments().items() if one["state"] == "TRAINING"}
