"""The training: a managed run command that sends the experiment to the head and starts it there."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pulumi

from infra.config.check_experiment import cluster, stack_layer, with_stack_layer
from infra.config.stack_settings import StackSettings
from infra.stack.head import Head
from infra.stack.naming import Naming
from infra.stack.payload_code import FOLDER, digest
from infra.stack.run_command import TRAINING, run_command_on_head
from infra.stack.run_command_script import ScriptTooLargeError, script_with_files
from payload.experiment import place
from payload.parcel import (
    ExperimentFiles,
    experiment_files,
    experiment_name,
    largest,
    payload_archive,
    sizes,
)

START_TRAINING = Path(__file__).parents[1] / "boot" / "start_training.sh"
START_S = 600
"""How long `pulumi up` waits for boot and first learner update, besides the wait for workers."""


@dataclass(frozen=True)
class TrainingScript:
    """The script that starts the training on the head."""

    text: str
    """Without its first lines, which say when it was sent."""
    payload: bytes
    """The tar file of the code that trains; it travels in a run command of its own."""
    num_env_runners: int
    """With all workers."""


class Training(pulumi.ComponentResource):
    """Starts the training, and again when payload, experiment or the wait for workers change."""

    def __init__(
        self,
        naming: Naming,
        settings: StackSettings,
        script: TrainingScript,
        head: Head,
        after: list[pulumi.Resource],
    ) -> None:
        super().__init__("volley:infra:Training", naming.name("training"), opts=naming.in_cluster)
        self.run_command = run_command_on_head(
            self,
            naming,
            head,
            name=TRAINING,
            script=script.text,
            timeout_s=_timeout_s(settings),
            after=after,
        )
        self.register_outputs({"runCommand": self.run_command.id})


def training_script(settings: StackSettings, root: Path) -> TrainingScript:
    """Returns the run command's script for the payload and the experiment below `root`.

    Raises:
        ScriptTooLargeError: Before anything is created.
    """
    experiment, payload = with_stack_layer(settings, root), payload_archive()
    try:
        text = run_command_script(
            experiment_name(Path(settings.experiment)),
            payload,
            experiment_files(root / settings.experiment),
            stack_layer(settings),
            min_nodes=1 + settings.min_workers,
            needs_gpu=settings.head.gpus > 0 and experiment.config.num_gpus_per_learner > 0,
            # maxWorkers is not part of it: more workers do not restart the training.
            timeout_s=_timeout_s(settings),
        )
    except ScriptTooLargeError as error:
        files = largest(sizes(experiment))
        also = f"; the largest files that it names: {files}" if files else ""
        raise ScriptTooLargeError(f"experiment: {settings.experiment}: {error}{also}") from None
    return TrainingScript(text, payload, place(experiment.config, cluster(settings)))


def run_command_script(
    name: str,
    payload: bytes,
    experiment: ExperimentFiles,
    stack: Mapping[str, Any],
    min_nodes: int,
    timeout_s: int,
    needs_gpu: bool = False,
) -> str:
    """Returns the script that unpacks the files and starts the training.

    Args:
        name: Name of the experiment on the head.
        payload: The code that trains, which is on the head already.
        stack: The stack's settings of the experiment, a layer over the experiment's file.

    Raises:
        ScriptTooLargeError: It is larger than a run command should be.
    """
    files = {
        "experiment.yaml": experiment.experiment,
        "stack.yaml": json.dumps(stack).encode(),
    }
    if experiment.archive:
        files["files.tar"] = experiment.archive.content()
    then = (
        f"EXPERIMENT={name} PAYLOAD={FOLDER}/{digest(payload)} "
        f"MIN_NODES={min_nodes} TIMEOUT_S={timeout_s} NEEDS_GPU={int(needs_gpu)}\n"
        f"{START_TRAINING.read_text()}"
    )
    return script_with_files(files, then)


def _timeout_s(settings: StackSettings) -> int:
    return settings.cluster_coordination_timeout_seconds + START_S
