"""`volley run`: a script of a user's own, with Ray and MLflow as on the cluster."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from payload.script.script_file import read_script

if TYPE_CHECKING:
    from payload.script.child_process import End
    from payload.script.script_file import Script


def run_script(options: argparse.Namespace) -> int:
    """Runs a script to its end; returns its exit code.

    Raises:
        UserError: The options, or what the script needs, cannot be used.
    """
    script = read_script(
        options.file, options.script_params, source_directory=options.source_directory
    )
    from payload.environments.machine_requirements import provide
    from payload.run.driver_lock import driver_lock
    from payload.run.run_folder import check_writable, make_folder
    from payload.script.environment import end_runs, script_variables
    from payload.tracking.mlflow_run import Tracking, connected_client, make_experiment

    check_writable(options.results)
    provide(script, options.results)
    folder = make_folder(options.results, Path(script.entry_script).stem)
    with driver_lock(folder):
        tracking = Tracking.embedded(options.results, folder.path.name)
        if options.tracking_uri is not None:
            tracking = Tracking(options.tracking_uri, None, folder.path.name)
        client = connected_client(tracking)
        make_experiment(client, tracking)
        os.environ.update(script_variables(folder.path, tracking))
        end = _run(script)
        runs = end_runs(client, folder.path, end.status)
    print(f"{end.status}: {end.reason}")
    _say_next(options, folder.path, runs)
    return end.exit_code


def _run(script: Script) -> End:
    """Runs the script with a Ray of its own, which it joins and which ends with it."""
    import ray

    from payload.run.ray_cluster import connect, disconnect
    from payload.script.child_process import run

    print("Starting Ray on this machine ...", flush=True)
    connect(None)
    address = ray.get_runtime_context().gcs_address
    command = [script.entry_script, *script.script_params]
    try:
        environment = {**os.environ, "RAY_ADDRESS": address}
        return run(command, environment, script.max_run_duration_seconds)
    finally:
        disconnect(0)


def _say_next(options: argparse.Namespace, folder: Path, runs: list[str]) -> None:
    from payload.command_line import ui_command

    print(f"Results          {folder}")
    if runs and options.tracking_uri is None:
        print(f"Next:\n  {ui_command(options.results)}")
