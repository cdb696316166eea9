"""The scaling: a run command that tells the head how many workers there may be, and brings what
Ray's autoscaler and the sleep need there. It changes no machine and no training.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pulumi
import yaml

from infra.boot.cluster_package import cluster_package, units
from infra.config.cost import hourly
from infra.config.prices import prices
from infra.config.stack_settings import StackSettings
from infra.config.vm_sizes import Machine
from infra.stack import autoscaling
from infra.stack.autoscaling import autoscaling_config
from infra.stack.head import Head
from infra.stack.last_start import SCALING
from infra.stack.naming import Naming
from infra.stack.run_command import run_command_on_head
from infra.stack.run_command_script import script_with_files
from infra.stack.workers import Workers
from payload.parcel.experiment_files import archive

APPLY = Path(__file__).parents[1] / "boot" / "apply_scaling.sh"
TIMEOUT_S = 900
"""How long the run command waits for cloud-init on a new head."""


class Scaling(pulumi.ComponentResource):
    """Sends the settings of the cluster's size, and again when one of them changes."""

    def __init__(
        self, naming: Naming, settings: StackSettings, head: Head, workers: Workers
    ) -> None:
        super().__init__("volley:infra:Scaling", naming.name("scaling"))
        script = pulumi.Output.all(workers.scale_set.id, head.vm.id, head.private_ip).apply(
            lambda known: scaling_script(settings, *known)
        )
        self.run_command = run_command_on_head(
            self,
            naming,
            head,
            name=SCALING,
            script=script,
            timeout_s=TIMEOUT_S,
            after=[workers.scale_set],
        )
        self.register_outputs({"runCommand": self.run_command.id})


def scaling_script(
    settings: StackSettings, scale_set_id: str, head_vm_id: str, head_ip: str
) -> str:
    """Returns the run command's script.

    Raises:
        ScriptTooLargeError: It is larger than a run command should be.
    """
    package = cluster_package()
    known = cluster_settings(settings, scale_set_id, head_vm_id)
    files = {
        **package,
        **units(),
        "cluster-settings.json": json.dumps(known, indent=1).encode(),
    }
    config, least = "", 0
    if settings.has_autoscaler:
        least = settings.max_workers if settings.scaling == "fixed" else settings.min_workers
        limits = autoscaling.Scaling(least, settings.max_workers, settings.idle_minutes)
        config = autoscaling_config(scale_set_id, head_ip, settings.head, settings.worker, limits)
        files["autoscaling.yaml"] = config.encode()
    files["autoscaler.sha256"] = _identity(package, config).encode()
    said = shlex.quote(_said(settings))
    then = f"TIMEOUT_S={TIMEOUT_S} FIRST_WORKERS={least} SAID={said}\n{APPLY.read_text()}"
    return script_with_files({"scaling.tar": archive(files)}, then)


def cluster_settings(settings: StackSettings, scale_set_id: str, head_vm_id: str) -> dict[str, Any]:
    """Returns what cluster_settings.py reads on the head."""
    known = prices()
    return {
        "scaling": settings.scaling,
        "min_workers": settings.min_workers,
        "max_workers": settings.max_workers,
        "sleep_after_minutes": settings.sleep_after_minutes,
        "max_hours": settings.max_hours,
        "budget": settings.budget,
        "scale_set": scale_set_id,
        "head_vm": head_vm_id,
        "head": _node(settings.head),
        "worker": _node(settings.worker),
        "dollars": {**asdict(hourly(settings)), "estimate": f"{known.location}, {known.as_of}"},
    }


def _said(settings: StackSettings) -> str:
    """Returns what the run command says when all is done."""
    most = settings.max_workers
    workers = f"{settings.min_workers} to {most} workers"
    return {
        "demand": f"{workers}; an idle one is deleted after {settings.idle_minutes} min",
        "fixed": f"{most} workers",
        "cpu": f"{workers}, by Azure's rules for their CPU",
    }[settings.scaling]


def _node(machine: Machine) -> dict[str, int]:
    return {"cpus": machine.vcpus, "gpus": machine.gpus}


def _identity(package: dict[str, bytes], config: str) -> str:
    """Returns a hash of all that Ray reads only when it starts."""
    provider = yaml.safe_load(config)["provider"] if config else None
    found = hashlib.sha256(yaml.safe_dump(provider).encode())
    for name, content in sorted(package.items()):
        found.update(name.encode() + content)
    return found.hexdigest()
