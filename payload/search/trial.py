"""A trial as Ray Tune runs it: a training run in an actor on the driver's machine.

It keeps checkpoints, progress and MLflow run in a run's folder of its own, and continues from there
whenever it is started again. Tune itself saves nothing of the trial.
"""

import os
import sys
import time
import traceback
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from ray import tune

from payload.errors import TemporaryError
from payload.experiment.derived_defaults import with_defaults
from payload.experiment.file import to_yaml
from payload.experiment.placement import for_evaluation
from payload.experiment.settings import Experiment
from payload.may_pass import may_pass
from payload.run.driver_lock import driver_lock
from payload.run.interruption import Interruption
from payload.run.panel import View
from payload.run.reporting import TrainOptions
from payload.run.run_status import RunStatus, State
from payload.run.train import Training
from payload.run.training_callback import callback_of
from payload.search.search_folder import SearchFolder, status_file
from payload.search.search_plan import Planned
from payload.tracking.metrics import STEPS, TIME, metrics
from payload.tracking.mlflow_run import Status

REASON = "reason"
"""Key in a result: why the trial is over; a trial that ASHA stops reports none."""
FAILED = "failed"
PASSES = "passes"
"""Key in the result of a failed trial: a resume may succeed, as after a full disk."""
SECONDS = "seconds"
"""TIME, under a name that Tune does not fill in itself."""
UPDATED = "updated"
"""Key in a result: whether a learner has made an update."""
IDLE = "idle"
"""Key in a result: the trial has written a checkpoint and no longer trains."""
IDLE_S = 0.2


@dataclass(frozen=True)
class Job:
    """What all trials of a search have in common."""

    search: Experiment
    folder: SearchFolder
    options: TrainOptions
    trials: dict[str, Planned]
    atari: bool
    env_runners: int
    """Env runners of each trial."""


class Trial(tune.Trainable):  # type: ignore[misc]
    """Trains one iteration with each step; config["name"] says which trial it is."""

    def setup(self, config: dict[str, Any], job: Job) -> None:
        experiment = job.trials[config["name"]].experiment(job.search)
        folder = job.folder.trial(config["name"])
        folder.path.mkdir(exist_ok=True)
        self._until_end = ExitStack()
        # The process of an earlier start may still be ending.
        self._until_end.enter_context(driver_lock(folder))
        folder.experiment_file.write_text(to_yaml(experiment))
        self._stop_file = job.folder.stop_file
        self._training = Training(
            experiment,
            with_defaults(experiment, job.atari, job.env_runners),
            folder,
            replace(job.options, status=status_file(folder), parent=job.folder),
            View(sys.stdout, experiment),
        )
        self._interruption = Interruption(self._end_stuck, signals=())
        self._until_end.enter_context(self._interruption)
        self._algorithm: Any = None
        self._delivered = False
        self._failure: str | None = None
        self._passes = False
        self._training.write_status("STARTING")
        try:
            self._algorithm = self._training.build(folder.checkpoints().newest_first())
        except Exception as error:  # RLlib raises any type; a retry would raise it again.
            self._fail(error)

    def step(self) -> dict[str, Any]:
        if self._failure is None and self._stop_file.exists():
            self._leave("KILLED")
            time.sleep(IDLE_S)
            return {IDLE: True}
        reason = None
        if self._failure is None:
            try:
                reason = self._training.step(self._algorithm, self._interruption)
            except Exception as error:
                self._fail(error)
        if self._failure is not None:
            return {"done": True, REASON: self._failure, FAILED: True, PASSES: self._passes}
        report = callback_of(self._algorithm).report
        assert report is not None
        values = metrics(report)
        wanted = (STEPS, self._training.experiment.search_metric)
        result = {name: values[name] for name in wanted if name in values}
        result |= {SECONDS: values[TIME], UPDATED: report.env_steps_trained > 0}
        if reason is None:
            return result
        self._training.write_status("FINISHED", reason)
        return {**result, "done": True, REASON: reason}

    def cleanup(self) -> None:
        """Ends the trial; Tune calls it when the trial is over, whoever ended it."""
        state = RunStatus.read(status_file(self._training.folder)).state
        if self._failure is not None:  # A full disk may have kept it out of the file.
            state = "FAILED"
        # A trial that is neither over nor stopped by ASHA continues after a resume.
        over: dict[State, Status] = {"FINISHED": "FINISHED", "FAILED": "FAILED"}
        self._leave(over.get(state, "KILLED"))
        if self._algorithm is not None and self._interruption.failure is None:
            self._algorithm.stop()
        self._until_end.close()

    def _leave(self, status: Status) -> None:
        """Writes a checkpoint, if there is anything new, and closes the MLflow run."""
        if self._delivered:
            return
        self._delivered = True
        if self._failure is None:
            progress = callback_of(self._algorithm).progress
            if progress.iteration > self._training.saved_iteration:
                self._training.save(self._algorithm, progress)
        if self._training.folder.progress_file.exists():
            self._training.draw()
        self._training.deliver(status)
        if status == "KILLED":
            self._training.write_status("KILLED")

    def _fail(self, error: Exception) -> None:
        traceback.print_exc()
        self._failure = self._interruption.failure or self._training.checkpoints.why(error)
        self._passes = isinstance(error, TemporaryError) or may_pass(error)
        self._training.write_status("FAILED", self._failure)

    def _end_stuck(self, reason: str) -> None:
        self._training.write_status("FAILED", reason)
        os._exit(1)


def bundles(job: Job, driver_cpus: int, node: str) -> list[dict[str, float]]:
    """Returns the resources of a trial: its own process on the driver's machine, and all others.

    Args:
        node: The address of the driver's machine, where results and MLflow are.
    """
    settings = job.search.config
    own: dict[str, float] = {f"node:{node}": 0.001}
    if driver_cpus:
        own["CPU"] = driver_cpus
    if settings.num_learners == 0 and settings.num_gpus_per_learner > 0:
        own["GPU"] = settings.num_gpus_per_learner
    gpus = settings.num_gpus_per_learner
    learner: dict[str, float] = {"GPU": gpus} if gpus > 0 else {"CPU": 1}
    env_runner: dict[str, float] = {"CPU": settings.num_cpus_per_env_runner}
    env_runners = job.env_runners + for_evaluation(settings)
    # RLlib takes these bundles by their number: EnvRunnerGroup's `bundle_offset`.
    return [own, *[env_runner] * env_runners, *[learner] * settings.num_learners]


def state_of(result: dict[str, Any]) -> State:
    """Returns the state of a trial after a result."""
    if result.get(FAILED):
        return "FAILED"
    return "FINISHED" if result.get("done") else "TRAINING"
