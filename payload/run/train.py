"""The training run from start to end: build, train, report, checkpoint, stop, summarize."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO, cast

import psutil

from payload.errors import UserError, first_line
from payload.experiment.settings import Experiment, Settings
from payload.impala.rllib_config import algorithm_config
from payload.run.checkpoints import Checkpoint
from payload.run.driver_lock import mark_dead_runs
from payload.run.evaluate import record_video
from payload.run.interruption import Interruption
from payload.run.panel import View
from payload.run.progress import Progress, Report, reason_to_stop
from payload.run.ray_cluster import disconnect, exit_at_once, watch_gcs
from payload.run.run_folder import LogStream, RunFolder, redirect_output, restore_output
from payload.run.run_status import RunStatus, State
from payload.tracking.learning_curve import draw_learning_curve
from payload.tracking.mlflow_callback import MLflowMetrics, callback_of
from payload.tracking.mlflow_run import MLflowRun, Status, Tracking
from payload.tracking.run_parameters import run_parameters


@dataclass(frozen=True)
class TrainOptions:
    """Options of the command line besides the experiment."""

    results: Path
    tracking_uri: str | None = None
    """Of an MLflow server; None keeps an embedded database in `results`."""
    checkpoint_every_s: float = 60.0
    keep_checkpoints: int = 3
    status: Path | None = None
    """A file that holds the run's state: see RunStatus."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    status: Status
    reason: str
    exit_code: int


def train(
    experiment: Experiment,
    settings: Settings,
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
    with _terminal(folder.log) as terminal:
        view = View(terminal, experiment)
        for note in (*notes, *mark_dead_runs(options.results)):
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
        settings: Settings,
        folder: RunFolder,
        options: TrainOptions,
        view: View,
    ) -> None:
        self.experiment, self.settings, self.folder = experiment, settings, folder
        self.options, self.view = options, view
        self.checkpoints = folder.checkpoints(options.keep_checkpoints)
        tracking = _tracking(folder, options)
        self.mlflow = MLflowRun(tracking, folder.mlflow_backlog, self._mlflow_started)

    def run(self, resume_from: list[Checkpoint], interruption: Interruption) -> Outcome:
        """Builds, trains and stops the algorithm; whatever happens becomes an outcome."""
        algorithm = None
        try:
            self.view.wait_for("Starting env runners and learner")
            with interruption.watch(threading.TIMEOUT_MAX):
                algorithm = self._build(resume_from)
            self.mlflow.log_params(run_parameters(self.experiment, self.settings))
            self.view.wait_for("Waiting for the first learner update")
            return self._loop(algorithm, interruption)
        except KeyboardInterrupt:
            return Outcome("KILLED", "stopped at once", interruption.exit_code)
        except UserError as error:
            return Outcome("FAILED", str(error), 2)
        except Exception as error:  # RLlib raises any type; the log has the traceback.
            traceback.print_exc()
            return Outcome("FAILED", interruption.failure or self._reason(error), 1)
        finally:
            self.view.stop()
            if algorithm is not None and interruption.failure is None:
                algorithm.stop()

    def _reason(self, error: Exception) -> str:
        if not isinstance(error, OSError):
            return first_line(error)
        newest = self.checkpoints.newest_first()
        intact = f"; {newest[0].path} is intact" if newest else ""
        # One of Arrow's, or from another process, names no file.
        what = f"{error.strerror}: {error.filename}" if error.filename else first_line(error)
        return what + intact

    def _build(self, resume_from: list[Checkpoint]) -> Any:
        config = algorithm_config(self.experiment, self.settings)
        config.callbacks(MLflowMetrics)
        algorithm = config.build_algo()
        progress = Progress()
        for checkpoint in resume_from:
            try:
                progress = checkpoint.progress()
                checkpoint.restore(algorithm)
            except Exception:  # A truncated file raises many types; the one before may be whole.
                traceback.print_exc()
                self.view.say(f"{checkpoint.path.name} cannot be read; trying the one before")
            else:
                self.folder.cut_progress(progress.iteration)
                self.view.say(
                    f"Resumed from {checkpoint.path} at {progress.env_steps:,} environment steps"
                )
                break
        else:
            if resume_from:
                where = resume_from[0].path.parent
                raise UserError(f"--resume: no checkpoint in {where} can be read")
        callback_of(algorithm).attach(self.mlflow, progress)
        # The checkpoint's learners know it too, but on the way to the goal of then.
        _tell_learners(algorithm, progress.towards(self.experiment.stop))
        return algorithm

    def _loop(self, algorithm: Any, interruption: Interruption) -> Outcome:
        callback = callback_of(algorithm)
        progress = callback.progress
        saved_at = time.monotonic()
        trained_before = progress.env_steps_trained
        updated = False
        while True:
            with interruption.watch():
                algorithm.train()
            report = callback.report
            assert report is not None
            self.folder.append_progress(report)
            if not updated and report.env_steps_trained > trained_before:
                updated = True
                seconds = time.time() - psutil.Process().create_time()
                # It was up to min_time_s_per_iteration ago: the end of an iteration shows it.
                self.view.say(f"First learner update within {seconds:.1f} s of the command")
                self.write_status("TRAINING")
            self._show(report, progress)
            _tell_learners(algorithm, progress.towards(self.experiment.stop))
            reason = reason_to_stop(self.experiment.stop, report, progress)
            over = reason is not None or interruption.requested
            if over or time.monotonic() - saved_at >= self.options.checkpoint_every_s:
                saved_at = time.monotonic()
                with interruption.watch():
                    self._save(algorithm, progress)
            if reason is not None:
                return Outcome("FINISHED", reason, 0)
            if interruption.requested:
                by = f"stopped by {interruption.signal_name}"
                return Outcome("KILLED", by, interruption.exit_code)

    def write_status(self, state: State, reason: str = "") -> None:
        """Writes the run's state to the file that --status names."""
        if self.options.status is not None:
            with suppress(OSError):  # A full disk must not end a run that trains.
                RunStatus(state, str(self.folder.path), reason).write(self.options.status)

    def _show(self, report: Report, progress: Progress) -> None:
        if self.mlflow.problem is not None:
            self.view.where = f"MLflow is away ({self.mlflow.problem}); metrics are kept"
        self.view.update(report, progress, self.settings.num_env_runners or 0)

    def _save(self, algorithm: Any, progress: Progress) -> None:
        checkpoint = self.checkpoints.save(algorithm, self.experiment, progress)
        self.checkpoints.mark_if_best(checkpoint)
        self.checkpoints.prune()

    def finish(self, outcome: Outcome) -> None:
        """Draws, records, uploads, sets the run's status, and prints what to do next."""
        say, folder = self.view.say, self.folder
        best = self.checkpoints.best()
        if folder.progress_file.exists():
            self._draw()
        if best is not None and outcome.status == "FINISHED":
            self._record(best)
        say("Delivering to MLflow ...")
        sys.stdout.flush()
        if best is not None:
            # At the end only: while it trains, a cluster saves the run's folder already.
            self.mlflow.log_artifact(best.path, "checkpoints/best")
        for path in (folder.experiment_file, folder.learning_curve, folder.video, folder.log):
            self.mlflow.log_artifact(path)
        self.mlflow.close(outcome.status)
        if self.mlflow.problem is not None:
            say(f"MLflow did not receive everything: {self.mlflow.problem}")
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
        say(f"  python -m payload evaluate {folder.path} --video best.mp4")
        if outcome.status != "FINISHED":
            say(f"  python -m payload train --resume {folder.path}")
        if self.options.tracking_uri is None:
            say("  make ui")

    def _draw(self) -> None:
        title = f"{self.experiment.run} on {self.experiment.env}"
        goal = self.experiment.stop.episode_return_mean
        try:
            draw_learning_curve(self.folder.progress_file, self.folder.learning_curve, title, goal)
        except OSError as error:  # A full disk must not keep the run's status from MLflow.
            self.view.say(f"No learning curve: {error.strerror}: {error.filename}")

    def _record(self, checkpoint: Checkpoint) -> None:
        try:
            episode_return, length = record_video(checkpoint, self.folder.video)
        except Exception as error:  # An environment that cannot render fails no finished run.
            traceback.print_exc()
            self.view.say(f"No video: {first_line(error)}")
        else:
            self.view.say(
                f"Video            {self.folder.video} "
                f"(return {episode_return:g} in {length:,} steps)"
            )

    def _mlflow_started(self, run_id: str) -> None:
        with suppress(OSError):  # A full disk must not keep the run from MLflow.
            self.folder.remember_mlflow_run(run_id, self.mlflow.tracking.uri)
        self.view.where = f"MLflow run {run_id}"
        # Above the panel, where no frame breaks the address in two.
        self.view.say(f"MLflow           {self.mlflow.page}")


def _tell_learners(algorithm: Any, progress: float) -> None:
    """Sets VTraceLearner.progress on every learner; RLlib's own learner has no use for it."""

    def tell(learner: Any) -> None:
        learner.progress = progress

    # 0: the training loop does not wait for learners on other nodes.
    algorithm.learner_group.foreach_learner(tell, timeout_seconds=0.0)


def _tracking(folder: RunFolder, options: TrainOptions) -> Tracking:
    name = folder.path.name
    if options.tracking_uri is None:
        tracking = Tracking.embedded(options.results, name)
    else:
        tracking = Tracking(options.tracking_uri, None, name)
    # Another tracking server does not know the run: there it becomes a new one.
    return replace(tracking, run_id=folder.mlflow_run_id(tracking.uri))


@contextmanager
def _terminal(log: Path) -> Iterator[TextIO]:
    """Sends all other output of this process to the log; yields the terminal."""
    descriptors = redirect_output(log)
    try:
        with redirect_stdout(LogStream(1)), redirect_stderr(LogStream(2)):
            yield cast("TextIO", LogStream(descriptors[0]))
    finally:
        restore_output(descriptors)
