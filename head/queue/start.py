"""head.queue.start FOLDER JOB NUMBER: submits an experiment with NUMBER env runners, or a script.

It runs with FOLDER first on PYTHONPATH. It pulls the experiment's image, restores its runs if
the head has none, and installs the packages that it names. Exit codes: 0 submitted, 2 refused (a
retry would fail again), 75 a transient error (a retry may succeed), 1 anything else.
"""

from __future__ import annotations

import os
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ray.exceptions import RayError
from requests import RequestException

from ..identity.client import IdentityError
from ..identity.restored_runs import restore
from ..may_pass import may_pass
from ..paths import RUNS
from .plan import (
    OOM_SCORE,
    OOM_SCORE_FILE,
    REFUSAL,
    entrypoint,
    image_of,
    job_environment,
    payload_command,
    read_plan,
    run_to_resume,
)
from .ray_api import JobClient
from .record import STATUS, read_record

if TYPE_CHECKING:
    from payload.experiment import Experiment
    from payload.experiment.script import Script

DASHBOARD_TIMEOUT_S = 30.0
SUBMIT_TIMEOUT_S = 300.0
"""Ray receives the job's files, up to 512 MiB."""


def main(folder: Path, job: str, number: int) -> int:
    import payload.errors

    # Solving and installing packages can take much memory.
    Path(OOM_SCORE_FILE).write_text(str(OOM_SCORE))
    # An older payload does not have it.
    temporary = getattr(payload.errors, "TemporaryError", ())
    try:
        _start(folder, job, number)
    except payload.errors.UserError as error:
        print(error, flush=True)
        return REFUSAL
    except Exception as error:
        away = (temporary, IdentityError, RequestException, RayError)
        if not (isinstance(error, away) or may_pass(error)):
            raise
        print(payload.errors.first_line(error), flush=True)
        return os.EX_TEMPFAIL
    return 0


def _start(folder: Path, job: str, number: int) -> None:
    """Submits the job.

    Raises:
        UserError: The payload refuses the experiment.
        TemporaryError, IdentityError, RequestException, RayError, OSError: Another try may succeed.
    """
    planned = read_plan(folder)
    if image_of(planned):
        planned = _with_image(planned, folder / STATUS)
    record = read_record(folder)
    assert record is not None, "the queue starts experiments of its store"
    key = record.key
    environment = job_environment(planned, folder, RUNS / key)
    # It is not repeated here, where it would keep the experiment's CPUs from others.
    restore(key)
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
    except RuntimeError as error:
        # An earlier start may have submitted it: Ray accepts a job's id once.
        try:
            state = client.get_job_status(job)
        except RuntimeError:
            if "status code 5" in str(error):
                raise ConnectionError(str(error)) from None
            raise error from None
        print(f"{job} was submitted before: {state}", flush=True)


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
        os.utime(image.pull(name))  # disk.py keeps what an unfinished experiment has used.
    finally:
        ray.shutdown()
    container.check(name)
    say(f"starting in {name}")
    return planned.model_copy(update={"image": name})


def connect() -> JobClient:
    """Waits for Ray's dashboard, which starts some seconds after Ray."""
    end = time.monotonic() + DASHBOARD_TIMEOUT_S
    while True:
        try:
            client = JobClient()
            client.limit_s = SUBMIT_TIMEOUT_S
            return client
        except (ConnectionError, RequestException):
            if time.monotonic() > end:
                raise
            time.sleep(1)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
