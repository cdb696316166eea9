"""The search from start to end: its trials under Ray Tune, their ranking, the files it leaves."""

import math
import os
import shutil
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
from ray import tune

from payload.atomic_file import replace_text
from payload.errors import first_line
from payload.experiment.file import to_yaml
from payload.experiment.placement import Cluster, cpus_of_trials_driver
from payload.experiment.settings import EPISODE_RETURN_MEAN
from payload.may_pass import may_pass
from payload.run.driver_lock import has_driver, mark_dead_runs
from payload.run.interruption import Interruption
from payload.run.ray_cluster import disconnect, exit_at_once, watch_gcs
from payload.run.reporting import Outcome, Reporting, stopped
from payload.run.run_status import RunStatus, State
from payload.run.terminal import terminal
from payload.run.undelivered import deliver_in_background
from payload.search.asha import ResumableASHA
from payload.search.ranking import Ranked, draw_trials, ranking, read_record, write_table
from payload.search.search_folder import status_file
from payload.search.search_panel import SearchView
from payload.search.search_plan import Plan, in_words
from payload.search.trial import (
    IDLE,
    PASSES,
    REASON,
    SECONDS,
    UPDATED,
    Job,
    Trial,
    bundles,
    state_of,
)
from payload.tracking import comparison
from payload.tracking.metrics import STEPS
from payload.tracking.run_parameters import run_parameters

FOR_TUNE = {
    # Trials report no return before their first episode has ended.
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
}
MAX_FAILURES = 3
"""How often a trial whose process has died is started again, from its checkpoint."""
SHOW_EVERY_S = 0.5
END_AT_MOST_S = 300.0
"""How long the search waits for trials that save, draw and upload after their last iteration."""


class SearchInterruptedError(Exception):
    """Every trial has written its checkpoint after a signal."""


def search(job: Job, plan: Plan, cluster: Cluster, notes: list[str]) -> int:
    """Trains every trial that is not over yet; returns the process's exit code.

    Args:
        notes: Lines to show first: settings that were translated or ignored.
    """
    with terminal(job.folder.log) as output:
        view = SearchView(output, job.search)
        dead = mark_dead_runs(job.options.results, job.options.tracking_uri)
        for note in (*notes, *dead):
            view.say(note)
        deliver_in_background(job.options.results, view.say)
        view.say(f"Search folder {job.folder.path}, log {job.folder.log.name}")
        own = (Search if plan.is_search else SeveralSeeds)(job, plan, view)

        def end_stuck(reason: str) -> None:
            try:
                own.finish(Outcome("FAILED", reason, 1))
            finally:
                own.notify(Outcome("FAILED", reason, 1))
                exit_at_once(1)

        with Interruption(end_stuck) as interruption:
            with watch_gcs(end_stuck):
                outcome = own.run(cluster, interruption)
            view.stop()
            disconnect(outcome.exit_code)
            try:
                own.finish(outcome)
            finally:
                own.notify(outcome)
    return outcome.exit_code


class Search(Reporting):
    """A search's parts, from the first trial to the summary."""

    view: SearchView
    verb = "tune"
    """The command that resumes it."""
    ends_early = "; a trial that ASHA ranks low ends early"

    def __init__(self, job: Job, plan: Plan, view: SearchView) -> None:
        super().__init__(job.folder, job.options, view)
        self.job = job
        self.metric = job.search.search_metric
        self.records = {
            trial.name: read_record(job.folder, trial, self.metric) for trial in plan.trials()
        }
        # A failed trial may succeed after a resume; its checkpoint is as good as any.
        for name, record in self.records.items():
            if record.state != "FINISHED":
                self.records[name] = replace(record, state="WAITING", reason="")
        self._updated = False
        self.may_pass: dict[str, str] = {}
        """Why trials failed that a resume may let succeed, by name."""

    def run(self, cluster: Cluster, interruption: Interruption) -> Outcome:
        """Runs the trials under Tune; every error becomes an outcome."""
        self.write_status("STARTING")
        self.mlflow.start()
        self.mlflow.log_params(self._parameters())
        self.job.folder.stop_file.unlink(missing_ok=True)
        waiting = [name for name, record in self.records.items() if record.state != "FINISHED"]
        if len(waiting) < len(self.records):
            self.view.say(f"{len(self.records) - len(waiting)} trials are already over")
        self.view.say(
            f"{len(waiting)} trials of {self.job.env_runners} env runners each{self.ends_early}"
        )
        try:
            if waiting:
                self._tuner(waiting, cluster, interruption).fit()
        except SearchInterruptedError:
            return stopped(interruption)
        except KeyboardInterrupt:
            return Outcome("KILLED", "stopped at once", interruption.exit_code)
        except Exception as error:  # Tune raises any type; the log has the traceback.
            traceback.print_exc()
            return Outcome("FAILED", first_line(error), os.EX_TEMPFAIL if may_pass(error) else 1)
        if self.may_pass:
            name, reason = next(iter(self.may_pass.items()))
            return Outcome("FAILED", f"{name}: {reason}", os.EX_TEMPFAIL)
        failed = [record for record in self.records.values() if record.state == "FAILED"]
        if len(failed) == len(self.records):
            return Outcome("FAILED", f"every trial failed: {failed[0].reason}", 1)
        also = f", {len(failed)} of them failed" if failed else ""
        return Outcome("FINISHED", f"{len(self.records)} trials are over{also}", 0)

    def _tuner(
        self, waiting: list[str], cluster: Cluster, interruption: Interruption
    ) -> tune.Tuner:
        job = self.job
        os.environ.update(FOR_TUNE)
        cpus = cpus_of_trials_driver(job.search.config, cluster, job.env_runners)
        resources = bundles(job, cpus, ray.util.get_node_ip_address())
        over = [name for name in self.records if name not in waiting]
        return tune.Tuner(
            tune.with_resources(
                tune.with_parameters(Trial, job=job), tune.PlacementGroupFactory(resources)
            ),
            param_space={"name": tune.grid_search(waiting)},
            tune_config=tune.TuneConfig(
                scheduler=self.scheduler(over),
                trial_name_creator=lambda trial: trial.config["name"],
                trial_dirname_creator=lambda trial: trial.config["name"],
            ),
            run_config=tune.RunConfig(
                name="search",
                storage_path=str(job.folder.tune.absolute()),
                callbacks=[Follower(self, interruption)],
                failure_config=tune.FailureConfig(max_failures=MAX_FAILURES),
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
                verbose=0,
            ),
        )

    def _parameters(self) -> dict[str, Any]:
        search = self.job.search
        searched = {f"config.{name}": space for name, space in search.search.items()}
        counts = {"trials": len(self.records), "trial.num_env_runners": self.job.env_runners}
        return run_parameters(search, search.config) | searched | counts

    def take(self, name: str, **changes: Any) -> None:
        """Records the progress of a trial."""
        before = self.records[name]
        record = self.records[name] = replace(before, **changes)
        if record.state != before.state and record.state in ("FINISHED", "FAILED"):
            own = self.job.folder.trial(name)
            RunStatus(record.state, str(own.path), record.reason).write(status_file(own))
            self.view.ended(record)

    def show(self) -> None:
        """Shows all trials; a trial's folder tells when its process has started."""
        for name, record in self.records.items():
            if record.state == "WAITING":
                status = read_record(self.job.folder, record.trial, self.metric).state
                if status == "STARTING":
                    self.records[name] = replace(record, state="STARTING")
        self.view.show(list(self.records.values()))

    def learner_updated(self) -> None:
        if not self._updated:
            self._updated = True
            self.write_status("TRAINING")

    def write_status(self, state: State, reason: str = "") -> None:
        """Writes the search's state to the file that --status names."""
        self.status = replace(
            self.status, state=state, reason=reason, mlflow_run=self.mlflow.run_id
        )
        self.write(self.status)

    def finish(self, outcome: Outcome) -> None:
        """Ranks, draws, records, uploads, and prints what to do next."""
        self.view.stop()
        say, folder = self.view.say, self.job.folder
        folder.stop_file.unlink(missing_ok=True)
        shutil.rmtree(folder.tune, ignore_errors=True)
        for line in mark_dead_runs(self.job.options.results, self.job.options.tracking_uri):
            say(line)
        for name, record in self.records.items():
            if record.state in ("STARTING", "TRAINING"):
                self.records[name] = replace(record, state="KILLED")
        settings = ranking(self.records.values())
        for write in (
            lambda: write_table(folder.table_file, settings, self.metric),
            lambda: self.draw(settings, f"{self.job.search.run} on {self.job.search.env}"),
        ):
            try:
                write()
            except OSError as error:  # A full disk must not keep the status from MLflow.
                say(f"Not written: {error.filename}: {error.strerror}")
        steps = sum(record.env_steps for record in self.records.values())
        self.status = replace(self.status, env_steps=steps)
        if math.isfinite(score := settings[0].score):
            if self.metric == EPISODE_RETURN_MEAN:
                self.status = replace(self.status, best_return=score)
            with suppress(OSError):  # The disk is full.
                self.write_best(settings[0])
            self.mlflow.log_metrics({self.metric: score}, steps)
        say("Uploading results to MLflow ...")
        made = (folder.experiment_file, folder.table_file, folder.picture, folder.best_file)
        self.upload(outcome.status, *filter(Path.exists, made), folder.log)
        self.view.show_ranking(settings)
        say(f"{outcome.status}: {outcome.reason}")
        self.write_status(outcome.status, outcome.reason)
        say(f"Trials           {folder.table_file}, {folder.picture.name}")
        commands = list(self.say_best(settings[0]))
        if any(record.state != "FINISHED" for record in self.records.values()):
            commands.append(f"{self.verb} --resume {folder.path}")
        self.say_next(*commands)

    # Several seeds of one setting differ in what follows.

    def scheduler(self, over: list[str]) -> Any:
        """Returns what ends trials early, for Tune; `over` are trials that have ended."""
        return ResumableASHA(self.job.folder, self.job.search.stop, self.metric, over)

    def draw(self, settings: list[Ranked], title: str) -> None:
        draw_trials(self.job.folder, settings, title, self.metric)

    def write_best(self, best: Ranked) -> None:
        replace_text(self.job.folder.best_file, to_yaml(self.job.search.setting(best.values)))

    def say_best(self, best: Ranked) -> Iterator[str]:
        """Says what is best; yields the command to type next."""
        if math.isfinite(best.score):
            self.view.say(
                f"Best setting     {in_words(best.values)}: {self.view.score} {best.score:.4g}"
            )
            yield f"train {self.job.folder.best_file}"


class SeveralSeeds(Search):
    """One setting with several seeds: nothing is compared, and nothing ends early."""

    verb = "train"
    ends_early = ""

    def scheduler(self, over: list[str]) -> Any:
        return None

    def draw(self, settings: list[Ranked], title: str) -> None:
        comparison.draw([self._curves()], self.metric, self.job.folder.picture, title)

    def write_best(self, best: Ranked) -> None:
        """Writes nothing: the experiment is the only setting."""

    def say_best(self, best: Ranked) -> Iterator[str]:
        self.view.say(comparison.in_words(self._curves(), self.metric))
        yield f"plot {self.job.folder.path}"

    def _curves(self) -> comparison.Curves:
        label = f"{self.job.search.run} on {self.job.search.env}"
        runs = (self.job.folder.trial(name) for name in self.records)
        started = [rows for run in runs if (rows := list(run.progress_rows()))]
        return comparison.Curves(label, started)


class Follower(tune.Callback):  # type: ignore[misc]
    """Reports Tune's events to the search; ends Tune once all trials are idle after a signal.

    When every trial is over, Tune kills processes that take more than 10 s to end
    (TuneController._cleanup_trials): it is kept waiting until they have given MLflow everything.
    """

    def __init__(self, search: Search, interruption: Interruption) -> None:
        self._search, self._interruption = search, interruption
        self._idle: set[str] = set()
        self._shown_at = -math.inf

    def __getstate__(self) -> dict[str, Any]:
        """Returns no state: Tune saves it for Tuner.restore, which volley does not call."""
        return {}

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._search.take(trial.config["name"], state="TRAINING")

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        name, state = trial.config["name"], state_of(result)
        if result.get(IDLE):
            self._idle.add(name)
            return
        changes: dict[str, Any] = {"state": state}
        if STEPS in result:
            changes["env_steps"] = int(result[STEPS])
            if self._search.metric in result:  # Not each iteration evaluates.
                changes["return_mean"] = result[self._search.metric]
            changes["time_total_s"] = result[SECONDS]
        if state != "TRAINING":
            changes["reason"] = result.get(REASON, "stopped by ASHA")
            if result.get(PASSES):
                self._search.may_pass[name] = changes["reason"]
        self._search.take(name, **changes)
        if result.get(UPDATED):
            self._search.learner_updated()

    def on_trial_recover(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._search.take(trial.config["name"], state="WAITING")

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        reason = f"its process died {MAX_FAILURES + 1} times, see the log"
        self._search.take(trial.config["name"], state="FAILED", reason=reason)

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        if time.monotonic() - self._shown_at > SHOW_EVERY_S:
            self._shown_at = time.monotonic()
            self._search.show()
        over = [trial.config["name"] for trial in trials if trial.is_finished()]
        if self._interruption.requested:
            self._search.job.folder.stop_file.touch()
            running = {trial.config["name"] for trial in trials if trial.status == "RUNNING"}
            if running <= self._idle:
                self._await_ends(over)
                raise SearchInterruptedError
        elif len(over) == len(trials):
            self._await_ends(over)

    def _await_ends(self, over: list[str]) -> None:
        """Waits until the processes of these trials have left their folders."""
        end = time.monotonic() + END_AT_MOST_S
        folders = [self._search.job.folder.trial(name) for name in over]
        while time.monotonic() < end and any(map(has_driver, folders)):
            time.sleep(0.1)
