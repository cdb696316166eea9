"""The training run from start to end: build, train, report, checkpoint, stop, sum up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import psutil

from payload.checkpoints import Checkpoint
from payload.errors import UserError
from payload.experiment import Experiment, Settings
from payload.mlflow_run import MLflowRun, Status, Tracking, flatten
from payload.panel import View
from payload.run_folder import RunFolder, redirect_output

STALLED_AFTER_S = 300.0
"""No iteration for so long means that training hangs, not that it is slow."""


@dataclass(frozen=True)
class TrainOptions:
    """What the command line says besides the experiment."""

    results: Path
    address: str | None = None
    """Of a running Ray cluster ("auto"); None starts Ray on this machine."""
    tracking_uri: str | None = None
    """Of an MLflow server; None keeps an embedded database in `results`."""
    checkpoint_every_s: float = 60.0
    keep_checkpoints: int = 3


@dataclass
class Outcome:
    """How a run ended."""

    status: Status
    reason: str
    exit_code: int


class TrainingStalledError(Exception):
    """Training hangs, or its learner thread died."""


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
    started = psutil.Process().create_time()
    with _terminal(folder.log) as terminal:
        view = View(terminal, experiment)
        for note in notes:
            view.say(note)
        view.say(f"Run folder {folder.path}, log {folder.log.name}")
        run = MLflowRun(_tracking(folder, options), folder.path / "mlflow_backlog.jsonl")
        run.on_start = lambda run_id: _mlflow_started(folder, view, run, run_id)
        with Stop() as stop:
            outcome = _train(
                experiment, settings, folder, options, resume_from, view, run, stop, started
            )
        view.stop()
        _finish(experiment, folder, options, view, run, outcome)
    return outcome.exit_code


def _train(
    experiment: Experiment,
    settings: Settings,
    folder: RunFolder,
    options: TrainOptions,
    resume_from: list[Checkpoint],
    view: View,
    run: MLflowRun,
    stop: Stop,
    started: float,
) -> Outcome:
    algorithm = None
    try:
        view.start("Building the algorithm ...")
        algorithm = _build(experiment, settings, resume_from, view, run)
        _log_parameters(experiment, settings, run)
        return _loop(algorithm, experiment, settings, folder, options, view, run, stop, started)
    except KeyboardInterrupt:
        return Outcome("KILLED", "stopped at once", stop.exit_code)
    except UserError:
        raise
    except OSError as error:
        traceback.print_exc()
        last = folder.checkpoints.newest_first()
        intact = f"; the checkpoint {last[0].path} is intact" if last else ""
        return Outcome("FAILED", f"{error.strerror}: {error.filename}{intact}", 1)
    except Exception as error:
        traceback.print_exc()
        message = stop.failure or f"{type(error).__name__}: {error}".splitlines()[0]
        return Outcome("FAILED", message, 1)
    finally:
        if algorithm is not None and stop.failure is None:
            algorithm.stop()


def _build(
    experiment: Experiment,
    settings: Settings,
    resume_from: list[Checkpoint],
    view: View,
    run: MLflowRun,
) -> Any:
    from payload.mlflow_metrics import MLflowMetrics, callback_of
    from payload.report import Progress
    from payload.rllib_config import algorithm_config

    config = algorithm_config(experiment, settings)
    config.callbacks(MLflowMetrics)
    algorithm = config.build_algo()
    progress = Progress()
    for checkpoint in resume_from:
        try:
            progress = checkpoint.progress()
            algorithm.restore_from_path(checkpoint.algorithm.absolute())
        except Exception:  # A truncated file shows in many ways; the one before may be whole.
            traceback.print_exc()
            view.say(f"{checkpoint.path.name} cannot be read; trying the one before")
        else:
            view.say(f"Resumed from {checkpoint.path} at {progress.env_steps:,} agent steps")
            break
    else:
        if resume_from:
            raise UserError(f"--resume: no checkpoint in {resume_from[0].path.parent} can be read")
    callback_of(algorithm).attach(run, progress)
    return algorithm


def _loop(
    algorithm: Any,
    experiment: Experiment,
    settings: Settings,
    folder: RunFolder,
    options: TrainOptions,
    view: View,
    run: MLflowRun,
    stop: Stop,
    started: float,
) -> Outcome:
    from payload.mlflow_metrics import callback_of
    from payload.report import reason_to_stop

    callback = callback_of(algorithm)
    progress = callback.progress
    saved_at, best_saved = time.monotonic(), progress.best_return
    first_update = False
    while True:
        with stop.watch():
            algorithm.train()
        report = callback.report
        assert report is not None
        if not first_update and report.env_steps_trained > 0:
            first_update = True
            view.say(f"First learner update {time.time() - started:.1f} s after the command")
        if run.problem is not None:
            view.where = f"MLflow is away ({run.problem}); metrics are kept"
        folder.append_progress(report)
        view.update(report, progress, settings.num_env_runners or 0)
        reason = reason_to_stop(experiment.stop, report, progress)
        over = reason is not None or stop.requested
        if over or time.monotonic() - saved_at >= options.checkpoint_every_s:
            saved_at = time.monotonic()
            best = progress.best_return > best_saved or best_saved == float("-inf")
            _save(algorithm, experiment, folder, options, progress, best, run)
            best_saved = max(best_saved, progress.best_return)
        if stop.requested:
            return Outcome("KILLED", f"stopped by {stop.signal_name}", stop.exit_code)
        if reason is not None:
            return Outcome("FINISHED", reason, 0)


def _save(
    algorithm: Any,
    experiment: Experiment,
    folder: RunFolder,
    options: TrainOptions,
    progress: Any,
    best: bool,
    run: MLflowRun,
) -> None:
    store = folder.checkpoints
    store.keep = options.keep_checkpoints
    checkpoint = store.save(algorithm, experiment, progress)
    if best:
        store.mark_best(checkpoint)
        run.log_artifact(checkpoint.path, "checkpoints/best")
    run.log_artifact(checkpoint.path, "checkpoints/last")
    store.prune()


def _finish(
    experiment: Experiment,
    folder: RunFolder,
    options: TrainOptions,
    view: View,
    run: MLflowRun,
    outcome: Outcome,
) -> None:
    """Draws, plays, uploads, sets the run's status, and says what to do next."""
    best = folder.checkpoints.best()
    if folder.progress_file.exists():
        from payload.learning_curve import draw_learning_curve

        title = f"{experiment.run} on {experiment.env}"
        goal = experiment.stop.episode_return_mean
        draw_learning_curve(folder.progress_file, folder.learning_curve, title, goal)
    if best is not None and outcome.status == "FINISHED":
        _record(best, folder, view)
    for path in (folder.experiment_file, folder.learning_curve, folder.video, folder.log):
        run.log_artifact(path)
    view.say("Delivering to MLflow ...")
    run.close(outcome.status)
    view.say(f"{outcome.status}: {outcome.reason}")
    resume = f"python -m payload train --resume {folder.path}"
    if best is None:
        view.say(f"See {folder.log}")
        return
    view.say(f"Best checkpoint  {best.path}")
    view.say(f"Learning curve   {folder.learning_curve}")
    view.say("Next:")
    view.say(f"  python -m payload evaluate {folder.path} --video best.mp4")
    view.say("  make ui" if options.tracking_uri is None else f"  open {options.tracking_uri}")
    if outcome.status != "FINISHED":
        view.say(f"  {resume}")
        if outcome.status == "FAILED":
            view.say(f"See {folder.log}")


def _record(checkpoint: Checkpoint, folder: RunFolder, view: View) -> None:
    from payload.evaluate import record_video

    try:
        episode_return, length = record_video(checkpoint, folder.video)
    except Exception:  # An environment that cannot render must not fail a finished run.
        traceback.print_exc()
        view.say(f"No video: {experiment_cannot_render(checkpoint)}")
    else:
        view.say(
            f"Video            {folder.video} (return {episode_return:g} in {length:,} steps)"
        )


def experiment_cannot_render(checkpoint: Checkpoint) -> str:
    """Says why there is no video."""
    return f"{checkpoint.experiment().env} cannot be rendered here (see the log)"


def _tracking(folder: RunFolder, options: TrainOptions) -> Tracking:
    name, run_id = folder.path.name, folder.mlflow_run_id()
    if options.tracking_uri is None:
        return Tracking.embedded(options.results, name, run_id)
    return Tracking(options.tracking_uri, None, name, run_id)


def _mlflow_started(folder: RunFolder, view: View, run: MLflowRun, run_id: str) -> None:
    folder.remember_mlflow_run(run_id, run.tracking.uri)
    view.where = f"MLflow run {run_id} in {run.tracking.uri}"


def _log_parameters(experiment: Experiment, settings: Settings, run: MLflowRun) -> None:
    """Logs the whole experiment, versions, seed, git commit and the cluster's shape."""
    from importlib.metadata import version

    import ray

    packages = ("ray", "torch", "gymnasium", "ale-py", "mlflow", "numpy", "volley")
    nodes = [node for node in ray.nodes() if node["Alive"]]
    resources = ray.cluster_resources()
    run.log_params(
        {
            "run": experiment.run,
            "env": experiment.env,
            **dict(flatten({"config": settings.model_dump()})),
            **dict(flatten({"stop": experiment.stop.model_dump(exclude_none=True)})),
            **{f"version.{name}": version(name) for name in packages},
            "version.python": sys.version.split()[0],
            "git_commit": _git_commit(),
            "cluster.nodes": len(nodes),
            "cluster.cpus": resources.get("CPU", 0.0),
            "cluster.gpus": resources.get("GPU", 0.0),
        }
    )


def _git_commit() -> str:
    try:
        return subprocess.run(
            ["git", "rev-parse", "HEAD"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


class Stop:
    """Signals, the watchdog and dead threads: what ends a run from outside the loop.

    The first Ctrl-C (or SIGTERM) lets the iteration end, so that a checkpoint is
    written; the second one stops at once.
    """

    def __init__(self) -> None:
        self.requested = False
        self.failure: str | None = None
        self.signal_name = ""
        self.exit_code = 1
        self._old: dict[int, Any] = {}
        self._hook = threading.excepthook

    def __enter__(self) -> Stop:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self._old[number] = signal.signal(number, self._on_signal)
        self._old[signal.SIGUSR1] = signal.signal(signal.SIGUSR1, self._on_failure)
        threading.excepthook = self._on_thread_error
        return self

    def __exit__(self, *_: object) -> None:
        threading.excepthook = self._hook
        for number, handler in self._old.items():
            signal.signal(number, handler)

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Fails the run if what is inside takes longer than STALLED_AFTER_S."""
        timer = threading.Timer(
            STALLED_AFTER_S, self._fail, [f"no progress for {STALLED_AFTER_S:.0f} s"]
        )
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _on_signal(self, number: int, frame: Any) -> None:
        self.signal_name = signal.Signals(number).name
        self.exit_code = 128 + number
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True

    def _on_thread_error(self, args: Any) -> None:
        self._hook(args)
        # IMPALA's learner thread: without it, algorithm.train() would wait for ever.
        if args.thread is not None and args.thread.name == "_LearnerThread":
            error = f"{args.exc_type.__name__}: {args.exc_value}".splitlines()[0]
            self._fail(f"the learner failed: {error}")

    def _fail(self, reason: str) -> None:
        self.failure = reason
        os.kill(os.getpid(), signal.SIGUSR1)

    def _on_failure(self, number: int, frame: Any) -> None:
        raise TrainingStalledError(self.failure)


@contextmanager
def _terminal(log: Path) -> Iterator[TextIO]:
    """Sends all other output of this process to the log; yields what the person sees."""
    sys.stdout.flush()
    sys.stderr.flush()
    descriptor = redirect_output(log)
    errors = os.dup(descriptor)
    try:
        with os.fdopen(descriptor, "w", buffering=1) as terminal:
            yield terminal
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(errors, 1)
        os.dup2(errors, 2)
        os.close(errors)
