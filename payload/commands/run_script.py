"""`volley run`: a script of a user's own, with Ray and MLflow as on the cluster."""

from __future__ import annotations

import argparse
import os
import re
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from payload.command_line import ui_command
from payload.commands.prepare import check_results, check_status, choose_tracking_uri
from payload.errors import TemporaryError, UserError, first_line
from payload.experiment.script import read_script, to_yaml

if TYPE_CHECKING:
    from payload.experiment.script import Script
    from payload.script.child_process import End
    from payload.tracking.mlflow_run import Tracking


SCRIPT = "script.yaml"
"""In the run's folder, beside the script's output."""
OVER = 2
"""The exit code for what a retry would not change."""
MLFLOWS_OWN_RETRIES = "7"
"""About two minutes; MLFLOW_HTTP_REQUEST_MAX_RETRIES in mlflow.environment_variables."""


def run_script(options: argparse.Namespace) -> int:
    """Runs a script to its end; returns its exit code, or 2 if it fails in a job of the cluster.

    Raises:
        UserError: The options, or what the script needs, cannot be used, or the script to resume
            is running.
        TemporaryError: In a job, MLflow does not answer.
    """
    choose_tracking_uri(options)
    check_status(options.status)
    if options.resume is not None and not options.resume.is_dir():
        raise UserError(f"--resume {options.resume}: is not a folder")
    script = read_script(options.file, options.script_params, options.source_directory)
    from payload.environments.machine_requirements import provide, provide_inputs
    from payload.run.driver_lock import driver_lock
    from payload.run.machine_limits import lift_machine_limits
    from payload.run.notify import check_notify, notify
    from payload.run.ray_cluster import is_job
    from payload.run.run_folder import RunFolder, make_folder
    from payload.run.run_status import RunStatus
    from payload.script.environment import script_variables
    from payload.tracking.mlflow_run import Tracking
    from payload.tracking.script_runs import end_runs, write_end

    check_notify(script)
    check_results(options)
    lift_machine_limits()
    in_job = is_job()
    if in_job:
        provide_inputs(script, options.results)
    else:
        provide(script, options.results)
    # MLflow's filters take no quotes.
    name = re.sub(r"[^\w.-]+", "-", Path(script.entry_script).stem)
    tracking = Tracking.at(options.tracking_uri, options.results, name)
    client = _client(tracking, in_job)
    run_folder = RunFolder(options.resume) if options.resume else make_folder(options.results, name)
    folder = run_folder.path
    with driver_lock(run_folder):
        (folder / SCRIPT).write_text(to_yaml(script))
        end_runs(client, folder, "FAILED", _now_ms())  # An earlier process may have been lost.
        undelivered = run_folder.undelivered_file
        undelivered.unlink(missing_ok=True)
        status = RunStatus("RUNNING", str(folder))
        status.write(options.status)
        run = _run_in_job if in_job else _run_here
        end = run(script, script_variables(folder, tracking.uri))
        # Nothing that fails from here on may start the script again.
        status.ended(end.status, end.reason).write(options.status)
        runs, ended_ms = [], _now_ms()
        try:
            runs = end_runs(client, folder, end.status, ended_ms)
        except Exception as error:  # MLflow raises errors of several libraries.
            print(f"Cannot mark the script's runs as ended in MLflow: {first_line(error)}")
            with suppress(OSError):  # A full disk must not keep the script's own exit code.
                write_end(undelivered, tracking.server, end.status, ended_ms)
    print(f"{end.status}: {end.reason}\nResults          {folder}")
    notify(script, status, end.status, end.reason, partial(print, flush=True))
    if runs and options.tracking_uri is None:
        print(f"Next:\n  {ui_command(options.results)}")
    # The queue retries other exit codes, but the script would fail again.
    return OVER if in_job and end.status == "FAILED" else end.exit_code


def _now_ms() -> int:
    return int(time.time() * 1000)


def _client(tracking: Tracking, in_job: bool) -> Any:
    """Returns an MlflowClient of a server that answers; volley's experiment is there."""
    from mlflow.exceptions import MlflowException

    from payload.tracking.mlflow_experiment import make_experiment
    from payload.tracking.mlflow_run import MAX_RETRIES, connected_client

    retries = os.environ.get(MAX_RETRIES)
    if in_job:  # The head's MLflow may still be starting.
        os.environ.setdefault(MAX_RETRIES, MLFLOWS_OWN_RETRIES)
    try:
        client = connected_client(tracking)
        make_experiment(client, tracking)
    except MlflowException as error:
        if in_job:
            raise TemporaryError(f"MLflow does not answer: {first_line(error)}") from None
        raise UserError(f"--tracking-uri {tracking.uri}: {first_line(error)}") from None
    finally:
        if retries is None:  # A client without retries is for this answer, not for the script.
            os.environ.pop(MAX_RETRIES, None)
    return client


def _run_here(script: Script, variables: dict[str, str]) -> End:
    """Runs the script with a Ray of its own, which it joins and which ends with it."""
    import ray

    from payload.run.ray_cluster import connect, disconnect

    os.environ.update(variables)  # Ray's workers inherit them.
    print("Starting Ray on this machine ...", flush=True)
    connect(None)
    exit_code = 1
    try:
        end = _run_at(ray.get_runtime_context().gcs_address, script, variables)
        exit_code = end.exit_code
        return end
    finally:
        disconnect(exit_code)


def _run_in_job(script: Script, variables: dict[str, str]) -> End:
    """Runs the script on the cluster of this job."""
    # Ray gives a job's signals to the script, too.
    return _run_at(os.environ["RAY_ADDRESS"], script, variables, forward=False)


def _run_at(address: str, script: Script, variables: dict[str, str], forward: bool = True) -> End:
    from payload.script.child_process import run

    return run(
        [script.entry_script, *script.script_params],
        {**os.environ, **variables, "RAY_ADDRESS": address},
        script.max_run_duration_seconds,
        forward,
    )
