"""The act in which a head without workers trains, and saves what another stack continues with."""

from __future__ import annotations

from infra.stack.results_account import CONTAINER
from rehearsal.backend import storage_accounts
from rehearsal.machines.nspawn_machine import all_machines
from rehearsal.scenario import python_environments, read_only_acts, stack_changes
from rehearsal.scenario.context import Context
from rehearsal.scenario.head_commands import save_results
from rehearsal.scenario.outcomes import UnexpectedError
from rehearsal.scenario.training_watch import until

CHECKPOINT_S = 150.0
"""The payload writes one every 60 s, and the head saves every 30 s."""


def head_alone(context: Context) -> str:
    """Runs `up` without workers; waits until a checkpoint of the training is saved."""
    seen = stack_changes.up(context, minWorkers="0", maxWorkers="0")
    machines = [machine.name for machine in all_machines()]
    if machines != ["head"]:
        raise UnexpectedError(f"machines: {', '.join(machines)}")
    metrics = read_only_acts.metrics(context)
    env_runners = context.training.env_runners()["head"]
    context.account = context.outputs["resultsAccountId"].rpartition("/")[2]
    seconds = until(lambda: _checkpoints(context.account), CHECKPOINT_S, "a saved checkpoint")
    installed = python_environments.installed(context.head)
    shared = python_environments.shared(context.head)
    # The checkpoint's last file may not be saved yet.
    save_results(context.head)
    return (
        f"{seen}; {env_runners} env runner on the head, {metrics}; "
        f"a checkpoint was saved {seconds:.0f} s later; {installed}, {shared}"
    )


def _checkpoints(account: str) -> list[str]:
    """Returns the saved files of checkpoints."""
    blobs = storage_accounts().list(account, CONTAINER, "runs/")
    return [blob for blob in blobs if "/checkpoints/" in blob]
