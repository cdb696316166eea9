"""The training run from start to end: build, train, report, checkpoint, stop, summarize."""

import math
import os
import sys
import threading
import time
import traceback
from dataclasses import replace
from functools import partial
from typing import Any

import psutil

from payload.algorithms.algorithm_config import algorithm_config
from payload.errors import TemporaryError, UserError
from payload.experiment.settings import Experiment
from payload.experiment.settings_of_every_algorithm import AlgorithmSettings
from payload.may_pass import may_pass
from payload.run.batch_resizing import resize_batches, settings_for, tell_learners
from payload.run.build_algorithm import build_algorithm, delay_learning
from payload.run.checkpoints import Checkpoint, restore_newest
from payload.run.driver_lock import mark_dead_runs
from payload.run.env_runner_number import EnvRunnerNumber
from payload.run.hints import Hints
from payload.run.initial_weights import load_weights
from payload.run.interruption import Interruption, iteration_limit_s
from payload.run.panel import View
from payload.run.progress import Progress, reason_to_stop
from payload.run.ray_cluster import disconnect, exit_at_once, watch_gcs
from payload.run.reporting import Outcome, Reporting, TrainOptions, stopped
from payload.run.run_folder import RunFolder
from payload.run.run_status import State
from payload.run.terminal import terminal
from payload.run.training_callback import MetricLog, TrainingCallback, callback_of
from payload.run.undelivered import deliver_in_background
from payload.run.video import record
from payload.tracking.event_files import EventFiles
from payload.tracking.learning_curve import draw_learning_curve
from payload.tracking.mlflow_run import Status
from payload.tracking.report import Report
from payload.tracking.run_parameters import run_parameters
from payload.tracking.wandb_run import WandbRun

STATUS_EVERY_S = 5.0
"""Minimum time between two writes of --status during training."""


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
        deliver_in_background(options.results, view.say)
        view.say(f"Run folder {folder.path}, log {folder.log.name}")
        training = Training(experiment, settings, folder, options, view)
        training.write_status("STARTING")

        def end_stuck(reason: str) -> None:
            training.view.stop()
            try:
                training.finish(Outcome("FAILED", reason, 1))
            finally:
                training.notify(Outcome("FAILED", reason, 1))
                exit_at_once(1)

        with Interruption(end_stuck) as interruption:
            with watch_gcs(interruption.fail):
                outcome = training.run(resume_from, interruption)
            disconnect(outcome.exit_code)
            try:
                training.finish(outcome)
            finally:
                training.notify(outcome)
    return outcome.exit_code


class Training(Reporting):
    """One run's parts, from the first iteration to the summary."""

    def __init__(
        self,
        experiment: Experiment,
        settings: AlgorithmSettings,
        folder: RunFolder,
        options: TrainOptions,
        view: View,
    ) -> None:
        super().__init__(folder, options, view)
        self.experiment, self.settings = experiment, settings
        self.checkpoints = folder.checkpoints(options.keep_checkpoints)
        self.hints = Hints(settings.info_metrics, view.say)
        self.env_runners = EnvRunnerNumber(options.env_runners, settings, view.say)
        self._status_at = -math.inf
        self.saved_iteration = 0
        """The iteration of the newest checkpoint."""
        self._saved_at = 0.0
        self._trained_before = 0
        self._updated = False
        self.wandb: WandbRun | None = None

    def run(self, resume_from: list[Checkpoint], interruption: Interruption) -> Outcome:
        """Builds, trains and stops the algorithm; every error becomes an outcome."""
        algorithm = None
        try:
            with interruption.watch(threading.TIMEOUT_MAX):
                number = self.env_runners.wait_for_room(self.view, interruption)
            if number is None:
                return stopped(interruption)
            self.settings = settings_for(self.experiment, self.settings, number)
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
        except (UserError, TemporaryError) as error:
            code = 2 if isinstance(error, UserError) else os.EX_TEMPFAIL
            return Outcome("FAILED", str(error), code)
        except Exception as error:  # RLlib raises any type; the log has the traceback.
            traceback.print_exc()
            passes = interruption.failure is None and may_pass(error)
            reason = interruption.failure or self.checkpoints.why(error)
            return Outcome("FAILED", reason, os.EX_TEMPFAIL if passes else 1)
        finally:
            self.view.stop()
            if algorithm is not None and interruption.failure is None:
                self.env_runners.end()
                algorithm.stop()

    def build(self, resume_from: list[Checkpoint]) -> Any:
        """Builds the algorithm in the state of the first checkpoint that can be read.

        Raises:
            UserError: None of them can, or an env runner cannot start.
            TemporaryError: Ray or the disk keeps one from being read, or no env runner is there.
        """
        config = algorithm_config(self.experiment, self.settings)
        config.callbacks(TrainingCallback)
        algorithm = build_algorithm(config)
        progress = restore_newest(algorithm, resume_from, self.view.say)
        delay_learning(algorithm, progress.env_steps)
        if not resume_from and self.options.init_from is not None:
            self.view.say(load_weights(algorithm, self.options.init_from))
        # Also for a trial that was cut off before its first checkpoint and begins again.
        self.folder.cut_progress(progress.iteration)
        recorded = partial(self.folder.recorded_metrics, until=progress.iteration)
        self.mlflow.log_recorded(recorded)
        parameters = run_parameters(self.experiment, self.settings)
        logs: list[MetricLog] = []
        if self.experiment.tensorboard:
            first_step = progress.env_steps + 1 if resume_from else 0
            logs.append(EventFiles(self.folder.path, recorded(), first_step))
        if self.experiment.wandb is not None:
            self.wandb = WandbRun(
                self.experiment, self.mlflow.tracking, self.folder.path, parameters, self.view.say
            )
            for env_steps, values in recorded():
                self.wandb.log_metrics(values, env_steps)
            logs.append(self.wandb)
        nodes = self.options.parent is None
        callback_of(algorithm).attach(self.mlflow, progress, self.view.say, nodes, logs)
        # The checkpoint's learners have progress too, but towards the goal of that time.
        tell_learners(algorithm, progress, self.experiment.stop, self.settings)
        self.mlflow.log_params(parameters)
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
        with interruption.watch(iteration_limit_s(self.settings, algorithm.iteration + 1)):
            self.env_runners.follow(algorithm)
            settings = resize_batches(algorithm, self.experiment, self.settings)
            if settings is not self.settings:
                self.settings = settings
                # Must precede the first train batch of the new size.
                tell_learners(algorithm, progress, self.experiment.stop, settings)
            algorithm.train()
        report = callback.report
        assert report is not None
        self.folder.append_progress(report)
        if not self._updated and report.env_steps_trained > self._trained_before:
            self._updated = True
            seconds = time.time() - psutil.Process().create_time()
            # The update was up to min_time_s_per_iteration ago: an iteration's end shows it.
            self.view.say(f"Training started after {seconds:.0f} s")
            self.status = replace(self.status, state="TRAINING")
            self._status_at = -math.inf
        self._show(report, progress)
        self.hints.after(algorithm, report, progress)
        tell_learners(algorithm, progress, self.experiment.stop, self.settings)
        reason = reason_to_stop(self.experiment.stop, report, progress)
        over = reason is not None or interruption.requested
        due = time.monotonic() - self._saved_at >= self.options.checkpoint_every_s
        # After a better evaluation, save the evaluated weights before training continues.
        if over or due or progress.evaluation_return > best_before:
            with interruption.watch():
                self.save(algorithm, progress)
        return reason

    def write_status(self, state: State, reason: str = "") -> None:
        """Writes the run's state, and why it ended, to the file that --status names."""
        if state in ("STARTING", "TRAINING"):
            self.status = replace(self.status, state=state, reason=reason)
        else:
            self.status = self.status.ended(state, reason)
        self._write_status()

    def _write_status(self) -> None:
        self._status_at = time.monotonic()
        self.status = replace(self.status, mlflow_run=self.mlflow.run_id)
        self.write(self.status)

    def _show(self, report: Report, progress: Progress) -> None:
        self.show_problem()
        self.view.update(report, progress, self.env_runners.target)
        self.status = self.status.after(report, self.view.outlook, progress.best_return)
        if time.monotonic() - self._status_at >= STATUS_EVERY_S:
            self._write_status()

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
            say(record(self.experiment, best, folder.video))
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
        resume = [] if outcome.status == "FINISHED" else [f"train --resume {folder.path}"]
        self.say_next(f"evaluate {folder.path} --video best.mp4", *resume)

    def deliver(self, status: Status) -> None:
        """Gives MLflow the files of the run, and each tracker its status."""
        if self.wandb is not None:
            self.wandb.close(status)
        folder, best = self.folder, self.checkpoints.best()
        if best is not None:
            # At the end only: while it trains, a cluster saves the run's folder already.
            self.mlflow.log_artifact(best.path, "checkpoints/best")
        made = (folder.experiment_file, folder.learning_curve, folder.video, folder.log)
        self.upload(status, *made)

    def draw(self) -> None:
        """Draws the learning curve; reports a full disk instead of ending the run."""
        title = f"{self.experiment.run} on {self.experiment.env}"
        goal = self.experiment.stop.episode_return_mean
        try:
            draw_learning_curve(self.folder.progress_file, self.folder.learning_curve, title, goal)
        except OSError as error:  # A full disk must not keep the run's status from MLflow.
            self.view.say(f"No learning curve: {error.strerror}: {error.filename}")
