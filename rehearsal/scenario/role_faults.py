"""Somebody takes the machines' roles away: what needs them fails, and recovers with them."""

from __future__ import annotations

import time

from rehearsal.azure.resource_kinds import all_of
from rehearsal.azure.roles import ROLE_DELAY_S
from rehearsal.backend import Backend
from rehearsal.machines.machine import Machine
from rehearsal.scenario.context import Context
from rehearsal.scenario.training_watch import NodeWatch, until

TYPE = "azure-native:authorization:RoleAssignment"
REFUSED = "not authorized to perform this operation"
PUBLISH_AGAIN = "publish-again.service"
PUBLISHED = "/var/lib/volley/ray-token.published"
REFUSED_S, BACK_S = 30.0, ROLE_DELAY_S + 30.0


def roles_removed(context: Context, nodes: NodeWatch) -> str:
    """The head cannot save, the token cannot be published, a worker cannot join."""
    backend, head, worker = Backend(), context.head, Machine("worker0")
    everybody = set(nodes.alive)
    roles = all_of(backend.resources(), "RoleAssignment")
    for resource_id in roles:
        backend.delete(resource_id)
    since = time.time()
    head.run("systemctl", "start", "--no-block", "sync-results.service")
    _publish_again(head)
    worker.run("systemctl", "restart", "--no-block", "ray-worker.service")
    for machine, unit in (
        (head, "sync-results.service"),
        (head, PUBLISH_AGAIN),
        (worker, "ray-worker.service"),
    ):
        _wait_for_refusal(machine, unit, since)
    for resource_id, role in roles.items():
        backend.create(TYPE, resource_id, role.inputs)
    back = time.monotonic()
    nodes.wait_for(everybody, BACK_S)
    until(lambda: head.run("test", "-e", PUBLISHED, check=False).returncode == 0, BACK_S, "token")
    head.run("systemctl", "start", "sync-results.service")
    seconds = time.monotonic() - back
    return f"all {len(roles)} were missed; everything worked {seconds:.0f} s after they were back"


def _publish_again(head: Machine) -> None:
    """Does what a head does at its first boot."""
    head.run("rm", PUBLISHED)
    head.run(
        *("systemd-run", "--quiet", f"--unit={PUBLISH_AGAIN}", "--uid=ray"),
        "--property=EnvironmentFile=/etc/volley/machine.env",
        "/usr/local/lib/volley/publish-ray-token",
    )


def _wait_for_refusal(machine: Machine, unit: str, since: float) -> None:
    def refused() -> bool:
        said = machine.run("journalctl", f"--unit={unit}", f"--since=@{since:.0f}").stdout
        return REFUSED in said

    until(refused, REFUSED_S, f"{unit} on {machine.name} fails without its role")
