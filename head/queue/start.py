"""head.queue.start FOLDER JOB NUMBER: submits an experiment with NUMBER env runners, or a script.

It runs with FOLDER first on PYTHONPATH. It pulls the experiment's image, restores its runs if
the head has none, and installs the packages that it names. Exit codes: 0 submitted, 2 refused (a
retry would fail again), 1 anything else.
"""

from __future__ import annotations

import os
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ray.job_submission import JobSubmissionClient

from ..blob import container, retry
from ..paths import RUNS
from ..results import restore_runs
from .plan import (
    REFUSAL,
    entrypoint,
    image_of,
    job_environment,
    payload_command,
    read_plan,
    run_to_resume,
)
from .record import STATUS, read_record

if TYPE_CHECKING:
    from payload.experiment import Experiment
    from payload.experiment.script import Script

DASHBOARD_TIMEOUT_S = 120.0


def main(folder: Path, job: str, number: int) -> int:
    import payload.errors

    try:
        planned = read_plan(folder)
        if image_of(planned):
            planned = _with_image(planned, folder / STATUS)
        record = read_record(folder)
        assert record is not None, "the queue starts experiments of its store"
        key = record.key
        environment = job_environment(planned, folder, RUNS / key)
    except payload.errors.UserError as error:
        print(error, flush=True)
        return REFUSAL
    # An older payload does not have it.
    except getattr(payload.errors, "TemporaryError", ()) as error:
        print(error, flush=True)
        return 1
    blobs = os.environ["RESULTS_CONTAINER"]
    retry(f"{blobs}/runs/{key}", lambda: restore_runs(container(blobs), key))
    # A container writes to the folders that exist when it starts.
    (RUNS / key).mkdir(parents=True, exist_ok=True)
    client = connect()
    command = payload_command(folder, RUNS / key, run_to_resume(RUNS / key), number, planned)
    print(f"{job}: {shlex.join(command)}", flush=True)
    try:
        client.submit_job(
            entrypoint=entrypoint(command, folder),
            submission_id=job,
            runtime_env=environment,
            metadata={"experiment": folder.name},
        )
    except RuntimeError:
        # An earlier start may have submitted it: Ray accepts a job's id once.
        print(f"{job} was submitted before: {client.get_job_status(job)}", flush=True)
    return 0


def _with_image(planned: Experiment | Script, status: Path) -> Experiment | Script:
    """Pulls the image on all machines and checks it; returns the plan with the image by digest.

    Raises:
        UserError: The registry does not give the image, or Ray cannot run in it.
        TemporaryError: Another try may succeed.
    """
    import ray

    from payload.environments import container, image
    from payload.run.run_status import RunStatus

    def say(progress: str) -> None:
        print(progress, flush=True)
        RunStatus("STARTING", "", progress).write(status)

    assert planned.image is not None, "the caller has looked"
    name = image.resolve(planned.image)
    package = Path(image.__file__).parents[1]
    ray.init(address="auto", log_to_driver=False, runtime_env={"py_modules": [str(package)]})
    try:
        image.pull_on_every_node(name, say)
    finally:
        ray.shutdown()
    container.check(name)
    say(f"starting in {name}")
    return planned.model_copy(update={"image": name})


def connect() -> JobSubmissionClient:
    """Waits for Ray's dashboard, which starts some seconds after Ray."""
    end = time.monotonic() + DASHBOARD_TIMEOUT_S
    while True:
        try:
            return JobSubmissionClient()
        except ConnectionError:
            if time.monotonic() > end:
                raise
            time.sleep(1)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
