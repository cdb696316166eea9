"""What a training run or a search reports: to the terminal, to MLflow, to the file of --status."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from payload.command_line import command_name, ui_command
from payload.run.checkpoints import Checkpoint
from payload.run.interruption import Interruption
from payload.run.notify import notify
from payload.run.panel import View
from payload.run.run_folder import RunFolder
from payload.run.run_status import RunStatus
from payload.tracking.mlflow_run import MLflowRun, Status


@dataclass(frozen=True)
class TrainOptions:
    """Options of the command line besides the experiment."""

    results: Path
    tracking_uri: str | None = None
    """URI of an MLflow server; None keeps an embedded database in `results`."""
    checkpoint_every_s: float = 60.0
    keep_checkpoints: int = 3
    status: Path | None = None
    """A file that holds the run's state: see RunStatus."""
    env_runners: Path | None = None
    """A file that holds the number of env runners to have: see EnvRunnerNumber."""
    init_from: Checkpoint | None = None
    """Whose weights a new run begins with."""
    parent: RunFolder | None = None
    """The search that the run is a trial of; its MLflow run contains this one's."""


@dataclass(frozen=True)
class Outcome:
    """How a run or a search ended."""

    status: Status
    reason: str
    exit_code: int


def stopped(interruption: Interruption) -> Outcome:
    """Returns how a run ends after a signal."""
    by = f"stopped by {interruption.signal_name}"
    return Outcome("KILLED", by, interruption.exit_code)


class Reporting:
    """What a run and a search have in common: folder, options, terminal and MLflow run."""

    def __init__(self, folder: RunFolder, options: TrainOptions, view: View) -> None:
        self.folder, self.options, self.view = folder, options, view
        self.status = RunStatus("STARTING", str(folder.path))
        tracking = folder.tracking(options.results, options.tracking_uri, options.parent)
        self.mlflow = MLflowRun(tracking.of(view.experiment), self._mlflow_started, self.view.say)

    def write(self, status: RunStatus) -> None:
        """Writes the state to the file that --status names."""
        status.write(self.options.status)

    def show_problem(self) -> None:
        """If MLflow is unreachable, shows that in place of the MLflow run."""
        if problem := self.mlflow.problem:
            self.view.where = (
                f"MLflow is unreachable ({problem}); metrics are buffered and sent later"
            )

    def upload(self, status: Status, *files: Path) -> None:
        """Gives MLflow files and the status, and waits a while until it has received everything."""
        for file in files:
            self.mlflow.log_artifact(file)
        with suppress(KeyboardInterrupt):  # Of a second Ctrl-C: the rest is sent later.
            self.mlflow.close(status)
        if self.mlflow.delivered and self.mlflow.problem is None:
            return
        kept = f"; {self.folder.undelivered_file.name} keeps the rest, which is sent later"
        later = "" if self.mlflow.delivered else kept
        problem = self.mlflow.problem or "no answer in time"
        self.view.say(f"MLflow did not receive everything: {problem}{later}")

    def notify(self, outcome: Outcome) -> None:
        """Tells the end to the experiment's `notify`, if it has one."""
        status = replace(self.status, mlflow_run=self.mlflow.run_id)
        notify(self.view.experiment, status, outcome.status, outcome.reason, self.view.say)

    def say_next(self, *commands: str) -> None:
        """Says where the MLflow run is, and which commands of volley to type next."""
        self.view.say(f"MLflow           {self.mlflow.page or self.view.where}")
        self.view.say("Next:")
        for command in commands:
            self.view.say(f"  {command_name()} {command}")
        if self.options.tracking_uri is None:
            self.view.say(f"  {ui_command(self.options.results)}")

    def _mlflow_started(self, run_id: str) -> None:
        with suppress(OSError):  # A full disk must not keep the run from MLflow.
            self.folder.remember_mlflow_run(run_id, self.mlflow.tracking.uri)
        self.view.where = f"MLflow run {run_id}"
        # Above the panel, where no frame breaks the address in two.
        self.view.say(f"MLflow           {self.mlflow.page}")
