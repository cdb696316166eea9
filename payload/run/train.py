"""The training run from start to end: build, train, report, checkpoint, stop, summarize."""

from __future__ import annotations

import math
import sys
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil

from payload.algorithms.algorithm_config import EVALUATION_AT_MOST_S, algorithm_config
from payload.command_line import command_name, ui_command
from payload.errors import UserError, first_line
from payload.experiment.algorithm_settings import AlgorithmSettings
from payload.experiment.settings import Experiment
from payload.run.batch_resizing import resize_batches, settings_for, tell_learners
from payload.run.checkpoints import Checkpoint
from payload.run.driver_lock import mark_dead_runs
from payload.run.env_runner_number import EnvRunnerNumber
from payload.run.interruption import STALLED_AFTER_S, Interruption
from payload.run.panel import View
from payload.run.progress import Progress, reason_to_stop
from payload.run.ray_cluster import disconnect, exit_at_once, watch_gcs
from payload.run.run_folder import RunFolder
from payload.run.run_status import RunStatus, State
from payload.run.terminal import terminal
from payload.run.training_callback import TrainingCallback, callback_of
from payload.run.video import record_under, record_video
from payload.tracking.learning_curve import draw_learning_curve
from payload.tracking.mlflow_run import MLflowRun, Status, Tracking
from payload.tracking.report import Report
from payload.tracking.run_parameters import run_parameters

STATUS_EVERY_S = 5.0
"""Shortest time between two writings of --status while it trains."""
ROOM_EVERY_S = 0.5
"""Pause before a training that has room for no env runner looks again."""


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
    parent: RunFolder | None = None
    """The search that the run is a trial of; its MLflow run contains this one's."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    status: Status
    reason: str
    exit_code: int


def stopped(interruption: Interruption) -> Outcome:
    """Returns how a run ends after a signal."""
    by = f"stopped by {interruption.signal_name}"
    return Outcome("KILLED", by, interruption.exit_code)


def train(
    experiment: Experiment,
    settings: AlgorithmSettings,
    folder: RunFolder,
    options: TrainOptions,
    resume_from: list[Checkpoint],
    notes: list[str],
) -> int:
    """Trains until a stop criterion is met; returns the process's exit code.

    Args:
        settings: The experiment's settings with every default filled in.
        resume_from: Checkpoints to try, in this order; empty for a new run.
        notes: Lines to show first: settings that were translated or ignored.
    """
    with terminal(folder.log) as output:
        view = View(output, experiment)
        for note in (*notes, *mark_dead_runs(options.results, options.tracking_uri)):
            view.say(note)
        view.say(f"Run folder {folder.path}, log {folder.log.name}")
        training = Training(experiment, settings, folder, options, view)
        training.write_status("STARTING")

        def end_stuck(reason: str) -> None:
            training.view.stop()
            training.finish(Outcome("FAILED", reason, 1))
            exit_at_once(1)

        with Interruption(end_stuck) as interruption:
            with watch_gcs(interruption.fail):
                outcome = training.run(resume_from, interruption)
            disconnect(outcome.exit_code)
            training.finish(outcome)
    return outcome.exit_code


class Training:
    """One run's parts, from the first iteration to the summary."""

    def __init__(
        self,
        experiment: Experiment,
        settings: AlgorithmSettings,
        folder: RunFolder,
        options: TrainOptions,
        view: View,
    ) -> None:
        self.experiment, self.settings, self.folder = experiment, settings, folder
        self.options, self.view = options, view
        self.checkpoints = folder.checkpoints(options.keep_checkpoints)
        self.env_runners = EnvRunnerNumber(options.env_runners, settings, view.say)
        self.status = RunStatus("STARTING", str(folder.path))
        self._status_at = -math.inf
        self.mlflow = MLflowRun(tracking_of(folder, options), self._mlflow_started)
        self.saved_iteration = 0
        """The iteration of the newest checkpoint."""
        self._saved_at = 0.0
        self._trained_before = 0
        self._updated = False

    def run(self, resume_from: list[Checkpoint], interruption: Interruption) -> Outcome:
        """Builds, trains and stops the algorithm; every error becomes an outcome."""
        algorithm = None
        try:
            with interruption.watch(threading.TIMEOUT_MAX):
                has_room = self.has_room(interruption)
            if not has_room:
                return stopped(interruption)
            self.view.wait_for("Starting env runners and learner")
            with interruption.watch(threading.TIMEOUT_MAX):
                algorithm = self.build(resume_from)
            self.view.wait_for("Waiting for the first learner update")
            while (reason := self.step(algorithm, interruption)) is None:
                if interruption.requested:
                    return stopped(interruption)
            return Outcome("FINISHED", reason, 0)
        except KeyboardInterrupt:
            return Outcome("KILLED", "stopped at once", interruption.exit_code)
        except UserError as error:
            return Outcome("FAILED", str(error), 2)
        except Exception as error:  # RLlib raises any type; the log has the traceback.
            traceback.print_exc()
            return Outcome("FAILED", interruption.failure or self.reason(error), 1)
        finally:
            self.view.stop()
            if algorithm is not None and interruption.failure is None:
                self.env_runners.end()
                algorithm.stop()

    def has_room(self, interruption: Interruption) -> bool:
        """Waits for room for an env runner, then takes what fits; False: a signal came first.

        RLlib would wait without end for env runners that cannot be placed.
        """
        number = self.env_runners.number_that_fits()
        if number < min(1, self.env_runners.target):
            self.view.wait_for("Waiting for free CPUs")
        while number < min(1, self.env_runners.target):
            if interruption.requested:
                return False
            time.sleep(ROOM_EVERY_S)
            number = self.env_runners.number_that_fits()
        self.settings = settings_for(self.experiment, self.settings, number)
        return True

    def reason(self, error: Exception) -> str:
        """Returns why the run failed, and what is left of it, in a line."""
        if not isinstance(error, OSError):
            return first_line(error)
        newest = self.checkpoints.newest_first()
        intact = f"; {newest[0].path} is intact" if newest else ""
        # One of Arrow's, or from another process, names no file.
        what = f"{error.strerror}: {error.filename}" if error.filename else first_line(error)
        return what + intact

    def build(self, resume_from: list[Checkpoint]) -> Any:
        """Builds the algorithm in the state of the first checkpoint that can be read.

        Raises:
            UserError: None of them can.
        """
        config = algorithm_config(self.experiment, self.settings)
        config.callbacks(TrainingCallback)
        algorithm = config.build_algo()
        progress = Progress()
        for checkpoint in resume_from:
            try:
                checkpoint.verify()
                progress = checkpoint.progress()
                checkpoint.restore(algorithm)
            except Exception:  # A truncated file raises many types; the one before may be whole.
                traceback.print_exc()
                self.view.say(f"{checkpoint.path.name} cannot be read; trying the one before")
            else:
                self.folder.cut_progress(progress.iteration)
                for env_steps, values in self.folder.recorded_metrics():
                    self.mlflow.log_metrics(values, env_steps)
                self.view.say(
                    f"Resumed from {checkpoint.path} at {progress.env_steps:,} environment steps"
                )
                break
        else:
            if resume_from:
                where = resume_from[0].path.parent
                raise UserError(f"--resume: no checkpoint in {where} can be read")
            # A trial that was cut off before its first checkpoint starts from the beginning.
            self.folder.cut_progress(0)
        nodes = self.options.parent is None
        callback_of(algorithm).attach(self.mlflow, progress, self.view.say, nodes)
        # The checkpoint's learners know it too, but on the way to the goal of then.
        tell_learners(algorithm, progress, self.experiment.stop, self.settings)
        self.mlflow.log_params(run_parameters(self.experiment, self.settings))
        self._saved_at = time.monotonic()
        self.saved_iteration = progress.iteration
        self._trained_before = progress.env_steps_trained
        return algorithm

    def step(self, algorithm: Any, interruption: Interruption) -> str | None:
        """Trains an iteration and records it; returns the stop criterion that is met, or None.

        Writes a checkpoint when one is due, and when the run is over.
        """
        callback = callback_of(algorithm)
        progress = callback.progress
        best_before = progress.best_evaluation
        with interruption.watch(self._limit_s(algorithm)):
            self.env_runners.follow(algorithm)
            settings = resize_batches(algorithm, self.experiment, self.settings)
            if settings is not self.settings:
                self.settings = settings
                # Before the first train batch of the new size.
                tell_learners(algorithm, progress, self.experiment.stop, settings)
            algorithm.train()
        report = callback.report
        assert report is not None
        self.folder.append_progress(report)
        if not self._updated and report.env_steps_trained > self._trained_before:
            self._updated = True
            seconds = time.time() - psutil.Process().create_time()
            # It was up to min_time_s_per_iteration ago: the end of an iteration shows it.
            self.view.say(f"Training started after {seconds:.0f} s")
            self.status = replace(self.status, state="TRAINING")
            self._status_at = -math.inf
        self._show(report, progress)
        tell_learners(algorithm, progress, self.experiment.stop, self.settings)
        reason = reason_to_stop(self.experiment.stop, report, progress)
        over = reason is not None or interruption.requested
        due = time.monotonic() - self._saved_at >= self.options.checkpoint_every_s
        # The weights that an evaluation has played are saved before training continues.
        if over or due or progress.evaluation_return > best_before:
            with interruption.watch():
                self.save(algorithm, progress)
        return reason

    def _limit_s(self, algorithm: Any) -> float:
        """Returns how many seconds the next iteration may take."""
        interval = self.settings.evaluation_interval
        evaluates = interval is not None and (algorithm.iteration + 1) % interval == 0
        return STALLED_AFTER_S + (EVALUATION_AT_MOST_S if evaluates else 0.0)

    def write_status(self, state: State, reason: str = "") -> None:
        """Writes the run's state to the file that --status names."""
        if state in ("STARTING", "TRAINING"):
            self.status = replace(self.status, state=state, reason=reason)
        else:
            self.status = self.status.ended(state, reason)
        self._write()

    def _write(self) -> None:
        self._status_at = time.monotonic()
        self.status = replace(self.status, mlflow_run=self.mlflow.run_id)
        if self.options.status is not None:
            with suppress(OSError):  # A full disk may not end a run that trains.
                self.status.write(self.options.status)

    def _show(self, report: Report, progress: Progress) -> None:
        if self.mlflow.problem is not None:
            problem = self.mlflow.problem
            self.view.where = (
                f"MLflow is unreachable ({problem}); metrics are buffered and sent later"
            )
        self.view.update(report, progress, self.env_runners.target)
        self.status = self.status.after(report, self.view.outlook)
        if time.monotonic() - self._status_at >= STATUS_EVERY_S:
            self._write()

    def save(self, algorithm: Any, progress: Progress) -> None:
        """Writes a checkpoint and removes those that are not kept."""
        self._saved_at, self.saved_iteration = time.monotonic(), progress.iteration
        checkpoint = self.checkpoints.save(algorithm, self.experiment, progress)
        self.checkpoints.mark_if_best(checkpoint)
        self.checkpoints.prune()

    def finish(self, outcome: Outcome) -> None:
        """Draws, records, uploads, sets the run's status, and prints what to do next."""
        say, folder = self.view.say, self.folder
        best = self.checkpoints.best()
        if folder.progress_file.exists():
            self.draw()
        if best is not None and outcome.status == "FINISHED":
            self._record(best)
        say("Uploading results to MLflow ...")
        sys.stdout.flush()
        self.deliver(outcome.status)
        say(f"{outcome.status}: {outcome.reason}")
        self.write_status(outcome.status, outcome.reason)
        if outcome.status == "FAILED":
            say(f"Log              {folder.log}")
        if best is None:
            return
        say(f"Best checkpoint  {best.path}")
        if outcome.status != "FINISHED":
            say(f"Last checkpoint  {self.checkpoints.newest_first()[0].path}")
        say(f"Learning curve   {folder.learning_curve}")
        say(f"MLflow           {self.mlflow.page or self.view.where}")
        say("Next:")
        volley = command_name()
        say(f"  {volley} evaluate {folder.path} --video best.mp4")
        if outcome.status != "FINISHED":
            say(f"  {volley} train --resume {folder.path}")
        if self.options.tracking_uri is None:
            say(f"  {ui_command(self.options.results)}")

    def deliver(self, status: Status) -> None:
        """Gives MLflow the artifacts and the status, and waits until it has received them."""
        folder, best = self.folder, self.checkpoints.best()
        if best is not None:
            # At the end only: while it trains, a cluster saves the run's folder already.
            self.mlflow.log_artifact(best.path, "checkpoints/best")
        for path in (folder.experiment_file, folder.learning_curve, folder.video, folder.log):
            self.mlflow.log_artifact(path)
        self.mlflow.close(status)
        if self.mlflow.problem is not None:
            self.view.say(f"MLflow did not receive everything: {self.mlflow.problem}")

    def draw(self) -> None:
        """Draws the learning curve; a full disk gives a line and does not end the run."""
        title = f"{self.experiment.run} on {self.experiment.env}"
        goal = self.experiment.stop.episode_return_mean
        try:
            draw_learning_curve(self.folder.progress_file, self.folder.learning_curve, title, goal)
        except OSError as error:  # A full disk may not keep the run's status from MLflow.
            self.view.say(f"No learning curve: {error.strerror}: {error.filename}")

    def _record(self, checkpoint: Checkpoint) -> None:
        try:
            under, path = self.experiment.run_under, self.folder.video
            if under is None:
                episode_return, length = record_video(checkpoint, path)
            else:  # It is the env runners' window that this process does not have.
                episode_return, length = record_under(under, checkpoint, path)
        except Exception as error:  # An environment that cannot render fails no finished run.
            traceback.print_exc()
            self.view.say(f"No video: {first_line(error)}")
        else:
            self.view.say(
                f"Video            {self.folder.video} "
                f"(return {episode_return:g} in {length:,} steps)"
            )

    def _mlflow_started(self, run_id: str) -> None:
        with suppress(OSError):  # A full disk may not keep the run from MLflow.
            self.folder.remember_mlflow_run(run_id, self.mlflow.tracking.uri)
        self.view.where = f"MLflow run {run_id}"
        # Above the panel, where no frame breaks the address in two.
        self.view.say(f"MLflow           {self.mlflow.page}")


def tracking_of(folder: RunFolder, options: TrainOptions) -> Tracking:
    """Returns where the MLflow run of a folder is kept, or will be."""
    name = folder.path.name
    if options.tracking_uri is None:
        tracking = Tracking.embedded(options.results, name)
    else:
        tracking = Tracking(options.tracking_uri, None, name)
    parent = None if options.parent is None else options.parent.mlflow_run_file
    # Another tracking server does not know the run: there it becomes a new one.
    return replace(tracking, run_id=folder.mlflow_run_id(tracking.uri), parent_file=parent)
