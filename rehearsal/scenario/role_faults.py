"""The act that removes the machines' roles: what needs them fails, and works when they return."""

from __future__ import annotations

import time

from rehearsal.azure.resources.resource_kinds import all_of
from rehearsal.azure.resources.roles import ROLE_DELAY_S
from rehearsal.backend import Backend
from rehearsal.machines.nspawn_machine import Machine, all_machines
from rehearsal.scenario import head_commands
from rehearsal.scenario.context import Context
from rehearsal.scenario.outcomes import UnexpectedError
from rehearsal.scenario.training_watch import NodeWatch, until

TYPE = "azure-native:authorization:RoleAssignment"
REFUSED = ("not authorized to perform this operation", "HTTP Error 403")
SCALING_ROLES = 4
"""Ray's autoscaler needs three for its workers, one of them for the custom image, and their lease
needs the fourth: act `head lost`."""
REFUSED_S, BACK_S = 30.0, ROLE_DELAY_S + 30.0


def roles_removed(context: Context, nodes: NodeWatch) -> str:
    """Removes the roles: the head cannot save, publish or share, and a worker cannot join."""
    backend, head = Backend(), context.head
    worker = next(machine for machine in all_machines() if machine.name != head.name)
    everybody = set(nodes.alive)
    roles = all_of(backend.resources(), "RoleAssignment")
    for resource_id in roles:
        backend.delete(resource_id)
    since = time.time()
    try:
        refused = _use_every_role(head, worker)
        for machine, unit in refused:
            _wait_for_refusal(machine, unit, since)
        until(
            lambda: "AuthorizationFailed" in head_commands.workers_problem(head),
            REFUSED_S,
            "Azure refuses the list of workers",
        )
    finally:
        for resource_id, role in roles.items():
            backend.create(TYPE, resource_id, role.inputs)
    if len(refused) + SCALING_ROLES != len(roles):
        raise UnexpectedError(f"{len(roles)} roles, {len(refused)} uses of them")
    back = time.monotonic()
    nodes.wait_for(everybody, BACK_S)
    published = ("test", "-e", head_commands.TOKEN_PUBLISHED)
    until(
        lambda: head.run(*published, check=False).returncode == 0, BACK_S, "the token is published"
    )
    head_commands.save_results(head)
    until(lambda: not head_commands.workers_problem(head), BACK_S, "a list of workers")
    seconds = time.monotonic() - back
    return f"all {len(roles)} are needed; everything worked {seconds:.0f} s after they were back"


def _use_every_role(head: Machine, worker: Machine) -> list[tuple[Machine, str]]:
    """Does what machines do with their roles; returns each machine with the unit that does it."""
    head.run("systemctl", "start", "--no-block", head_commands.SAVE_UNIT)
    worker.run("systemctl", "restart", "--no-block", "ray-worker.service")
    head.run("rm", head_commands.TOKEN_PUBLISHED)
    _start(head, "publish-again", head_commands.PUBLISH_TOKEN)
    put = f"{head_commands.PUT_BLOB} $ENVIRONMENT_CONTAINER probe /etc/hostname"
    _start(head, "share-again", put)
    _start(worker, "take-again", f"{head_commands.TAKE_ENVIRONMENT} probe /tmp/probe")
    artifact = f"{head_commands.PUT_BLOB} $RESULTS_CONTAINER mlartifacts/probe /etc/hostname"
    _start(head, "artifact-again", artifact, *head_commands.AS_MLFLOW)
    return [
        (head, head_commands.SAVE_UNIT),
        (worker, "ray-worker.service"),
        (head, "publish-again.service"),
        (head, "share-again.service"),
        (worker, "take-again.service"),
        (head, "artifact-again.service"),
    ]


def _start(machine: Machine, unit: str, command: str, *more: str) -> None:
    options = ["--quiet", f"--unit={unit}", *more]
    options += ["--property=EnvironmentFile=/etc/volley/machine.env"]
    machine.run("systemd-run", *options, "sh", "-c", command)


def _wait_for_refusal(machine: Machine, unit: str, since: float) -> None:
    def refused() -> bool:
        journal = machine.run("journalctl", f"--unit={unit}", f"--since=@{since:.0f}").stdout
        return any(words in journal for words in REFUSED)

    until(refused, REFUSED_S, f"{unit} on {machine.name} fails without its role")
