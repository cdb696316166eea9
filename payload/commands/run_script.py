"""`volley run`: a script of a user's own, with Ray and MLflow as on the cluster."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from payload.command_line import ui_command
from payload.commands.prepare import check_tracking_uri
from payload.errors import UserError, first_line
from payload.script.script_file import read_script

if TYPE_CHECKING:
    from payload.script.child_process import End
    from payload.script.script_file import Script
    from payload.tracking.mlflow_run import Tracking


def run_script(options: argparse.Namespace) -> int:
    """Runs a script to its end; returns its exit code.

    Raises:
        UserError: The options, or what the script needs, cannot be used.
    """
    check_tracking_uri(options.tracking_uri)
    script = read_script(options.file, options.script_params, options.source_directory)
    from payload.environments.machine_requirements import provide
    from payload.run.run_folder import check_writable, make_folder
    from payload.script.environment import end_runs, script_variables
    from payload.tracking.mlflow_run import Tracking

    check_writable(options.results)
    provide(script, options.results)
    name = Path(script.entry_script).stem
    tracking = Tracking.at(options.tracking_uri, options.results, name)
    client = _client(tracking)
    folder = make_folder(options.results, name).path
    end = _run(script, script_variables(folder, tracking.uri))
    runs = end_runs(client, folder, end.status)
    print(f"{end.status}: {end.reason}\nResults          {folder}")
    if runs and options.tracking_uri is None:
        print(f"Next:\n  {ui_command(options.results)}")
    return end.exit_code


def _client(tracking: Tracking) -> Any:
    """Returns an MlflowClient of a server that answers; volley's experiment is there."""
    from mlflow.exceptions import MlflowException

    from payload.tracking.mlflow_run import MAX_RETRIES, connected_client, make_experiment

    retries = os.environ.get(MAX_RETRIES)
    try:
        client = connected_client(tracking)
        make_experiment(client, tracking)
    except MlflowException as error:
        raise UserError(f"--tracking-uri {tracking.uri}: {first_line(error)}") from None
    finally:
        if retries is None:  # A client without retries is for this answer, not for the script.
            os.environ.pop(MAX_RETRIES, None)
    return client


def _run(script: Script, variables: dict[str, str]) -> End:
    """Runs the script with a Ray of its own, which it joins and which ends with it."""
    import ray

    from payload.run.ray_cluster import connect, disconnect
    from payload.script.child_process import run

    os.environ.update(variables)  # Ray's workers inherit them.
    print("Starting Ray on this machine ...", flush=True)
    connect(None)
    exit_code = 1
    try:
        address = ray.get_runtime_context().gcs_address
        end = run(
            [script.entry_script, *script.script_params],
            {**os.environ, "RAY_ADDRESS": address},
            script.max_run_duration_seconds,
        )
        exit_code = end.exit_code
        return end
    finally:
        disconnect(exit_code)
