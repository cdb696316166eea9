"""The head's software: a run command that brings the wheel of head/ and the cluster's settings.

A change of either replaces no machine. Trainings continue, unless Ray has to restart because its
autoscaler has changed.
"""

import hashlib
import shlex
from dataclasses import asdict
from pathlib import Path

import pulumi
import yaml

from head.cluster_settings import ClusterSettings, Prices
from head.resource_manager import PUBLIC_CLOUD
from head.room import Node
from infra.boot.head_wheel import head_files, head_wheel, wheel_name
from infra.config.cost import hourly, prices_from
from infra.config.stack_settings import StackSettings
from infra.config.vm_sizes import Machine
from infra.stack.head import Head
from infra.stack.idle_workers import WorkerLimits, autoscaling_config
from infra.stack.naming import Naming
from infra.stack.run_command import HEAD_SOFTWARE, last_start, run_command_on_head
from infra.stack.run_command_script import script_with_files
from infra.stack.workers import Workers

INSTALL = Path(__file__).parents[1] / "boot" / "install_head.sh"
TIMEOUT_S = 900
"""How long the run command waits for cloud-init on a new head."""
IN_RAY = (
    "head/__init__.py",
    "head/autoscaler/",
    "head/files.py",
    "head/identity/__init__.py",
    "head/identity/client.py",
    "head/machine_token.py",
    "head/paths.py",
    "head/resource_manager.py",
)
"""Parts of the wheel that Ray's autoscaler imports."""


class HeadSoftware(pulumi.ComponentResource):
    """Installs the head's software, and again when it or a setting of the cluster changes."""

    def __init__(
        self,
        naming: Naming,
        settings: StackSettings,
        head: Head,
        workers: Workers,
        lease: pulumi.Input[str],
    ) -> None:
        """
        Args:
            lease: The resource id of the workers' lease; "" where Azure's own rules scale them.
        """
        super().__init__(
            "volley:infra:HeadSoftware", naming.name("head-software"), opts=naming.in_cluster
        )
        script = pulumi.Output.all(workers.scale_set.id, head.vm.id, head.private_ip, lease).apply(
            lambda ids: install_script(settings, *ids)
        )
        self.run_command = run_command_on_head(
            self, naming, head, HEAD_SOFTWARE, script, TIMEOUT_S, after=[workers.scale_set]
        )
        # Its id comes when it has been executed, on a new VM again.
        self.host_key: pulumi.Output[str] = pulumi.Output.all(
            self.run_command.id, naming.group, head.vm.name
        ).apply(lambda names: _host_key(*names[1:]))
        self.register_outputs({"runCommand": self.run_command.id})


def install_script(
    settings: StackSettings, scale_set_id: str, head_vm_id: str, head_ip: str, lease_id: str
) -> str:
    """Returns the run command's script.

    Raises:
        ScriptTooLargeError: It is larger than a run command should be.
    """
    wheel = wheel_name()
    cluster = cluster_settings(settings, scale_set_id, head_vm_id, lease_id)
    files = {
        wheel: head_wheel(),
        "cluster-settings.json": cluster.to_json().encode(),
        "authorized_keys": "".join(f"{key}\n" for key in settings.ssh_public_keys).encode(),
    }
    autoscaling, first_workers = "", 0
    if settings.has_autoscaler:
        limits = _worker_limits(settings)
        first_workers = limits.min_workers
        autoscaling = autoscaling_config(head_ip, settings.head, settings.worker, limits)
        files["autoscaling.yaml"] = autoscaling.encode()
    variables = {
        "ADMIN": settings.admin_username,
        "WHEEL": wheel,
        "RAY_RESTARTS_WITH": _ray_restarts_with(autoscaling),
        "FIRST_WORKERS": first_workers,
        "TIMEOUT_S": TIMEOUT_S,
        "SUMMARY": _summary(settings),
    }
    lines = [f"{name}={shlex.quote(str(value))}\n" for name, value in variables.items()]
    return script_with_files(files, "".join(lines) + INSTALL.read_text())


def cluster_settings(
    settings: StackSettings, scale_set_id: str, head_vm_id: str, lease_id: str = ""
) -> ClusterSettings:
    """Returns the settings of the cluster that the head needs."""
    return ClusterSettings(
        scaling=settings.scaling,
        min_workers=settings.min_workers,
        max_workers=settings.max_workers,
        sleep_after_minutes=settings.sleep_after_minutes,
        max_hours=settings.max_hours,
        budget=settings.budget,
        endpoint=PUBLIC_CLOUD,
        scale_set=scale_set_id,
        head_vm=head_vm_id,
        lease=lease_id,
        head=_node(settings.head),
        worker=_node(settings.worker),
        prices=Prices(**asdict(hourly(settings)), estimate=prices_from(settings)),
        security_updates=settings.security_updates,
    )


def _host_key(group: str, vm: str) -> str:
    executed = last_start(HEAD_SOFTWARE, group, vm)
    return executed.host_key if executed else ""


def _worker_limits(settings: StackSettings) -> WorkerLimits:
    fixed = settings.scaling == "fixed"
    return WorkerLimits(
        min_workers=settings.max_workers if fixed else settings.min_workers,
        max_workers=settings.max_workers,
        idle_minutes=settings.idle_minutes,
    )


def _summary(settings: StackSettings) -> str:
    """Returns the run command's last line of output."""
    most = settings.max_workers
    workers = f"{settings.min_workers} to {most} workers"
    return {
        "demand": f"{workers}; an idle worker is deleted after {settings.idle_minutes} min",
        "fixed": f"{most} workers",
        "cpu": f"{workers}, by Azure's rules for their CPU load",
    }[settings.scaling]


def _node(machine: Machine) -> Node:
    return Node(machine.vcpus, machine.gpus)


def _ray_restarts_with(autoscaling: str) -> str:
    """Returns a hash of everything that Ray reads only when it starts."""
    provider = yaml.safe_load(autoscaling)["provider"] if autoscaling else None
    digest = hashlib.sha256(yaml.safe_dump(provider).encode())
    for name, content in head_files().items():
        if name.startswith(IN_RAY):
            digest.update(name.encode() + content)
    return digest.hexdigest()
