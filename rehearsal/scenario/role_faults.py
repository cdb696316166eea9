"""Somebody takes the machines' roles away: what needs them fails, and recovers with them."""

from __future__ import annotations

import json
import time

from head.paths import WORKERS as WORKERS_FILE
from rehearsal.azure.resources.resource_kinds import all_of
from rehearsal.azure.roles import ROLE_DELAY_S
from rehearsal.backend import Backend
from rehearsal.machines.machine import Machine, all_machines
from rehearsal.scenario.context import Context
from rehearsal.scenario.outcomes import UnexpectedError
from rehearsal.scenario.training_watch import PYTHON, NodeWatch, until

TYPE = "azure-native:authorization:RoleAssignment"
REFUSED = ("not authorized to perform this operation", "HTTP Error 403")
LIBRARY = "/usr/local/lib/volley"
PUBLISHED = "/var/lib/volley/ray-token.published"
SCALING_ROLES = 2
"""With which Ray's autoscaler lists, makes and deletes workers."""
REFUSED_S, BACK_S = 30.0, ROLE_DELAY_S + 30.0


def roles_removed(context: Context, nodes: NodeWatch) -> str:
    """The head can save, publish and share nothing; a worker can neither join nor take."""
    backend, head = Backend(), context.head
    worker = next(machine for machine in all_machines() if machine.name != head.name)
    everybody = set(nodes.alive)
    roles = all_of(backend.resources(), "RoleAssignment")
    for resource_id in roles:
        backend.delete(resource_id)
    since = time.time()
    refused = _use_every_role(head, worker)
    if len(refused) + SCALING_ROLES != len(roles):
        raise UnexpectedError(f"{len(roles)} roles, {len(refused)} uses of them")
    for machine, unit in refused:
        _wait_for_refusal(machine, unit, since)
    until(lambda: "AuthorizationFailed" in _workers_problem(head), REFUSED_S, "no list of workers")
    for resource_id, role in roles.items():
        backend.create(TYPE, resource_id, role.inputs)
    back = time.monotonic()
    nodes.wait_for(everybody, BACK_S)
    until(lambda: head.run("test", "-e", PUBLISHED, check=False).returncode == 0, BACK_S, "token")
    head.run("systemctl", "start", "sync-results.service")
    until(lambda: not _workers_problem(head), BACK_S, "a list of workers")
    seconds = time.monotonic() - back
    return f"all {len(roles)} were missed; everything worked {seconds:.0f} s after they were back"


def _use_every_role(head: Machine, worker: Machine) -> list[tuple[Machine, str]]:
    """Does what machines do with their roles; returns who does it in which unit."""
    head.run("systemctl", "start", "--no-block", "sync-results.service")
    worker.run("systemctl", "restart", "--no-block", "ray-worker.service")
    head.run("rm", PUBLISHED)
    _start(head, "publish-again", f"{LIBRARY}/publish-ray-token")
    put = f"{PYTHON} {LIBRARY}/blob.py put $ENVIRONMENT_CONTAINER probe /etc/hostname"
    _start(head, "share-again", put)
    _start(worker, "take-again", f"/usr/bin/python3 {LIBRARY}/take_environment.py probe /tmp/probe")
    return [
        (head, "sync-results.service"),
        (worker, "ray-worker.service"),
        (head, "publish-again.service"),
        (head, "share-again.service"),
        (worker, "take-again.service"),
    ]


def _workers_problem(head: Machine) -> str:
    """Returns why Ray's autoscaler on the head cannot ask Azure; empty: it can."""
    return str(json.loads(head.run("cat", WORKERS_FILE).stdout)["problem"])


def _start(machine: Machine, unit: str, command: str) -> None:
    machine.run(
        *("systemd-run", "--quiet", f"--unit={unit}", "--uid=ray"),
        "--property=EnvironmentFile=/etc/volley/machine.env",
        *("sh", "-c", command),
    )


def _wait_for_refusal(machine: Machine, unit: str, since: float) -> None:
    def refused() -> bool:
        said = machine.run("journalctl", f"--unit={unit}", f"--since=@{since:.0f}").stdout
        return any(words in said for words in REFUSED)

    until(refused, REFUSED_S, f"{unit} on {machine.name} fails without its role")
