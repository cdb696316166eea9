"""head.queue.start FOLDER JOB NUMBER: submits an experiment with NUMBER env runners, or a script.

It runs with FOLDER first on PYTHONPATH. It restores the runs of the experiment if the head has
none, and installs the packages that the experiment names. Exit codes: 0 submitted, 2 refused (a
retry would fail again), 1 anything else.
"""

import os
import shlex
import sys
import time
from pathlib import Path

from ray.job_submission import JobSubmissionClient

from ..blob import container, retry
from ..paths import RUNS
from ..results import restore_runs
from .plan import REFUSAL, entrypoint, job_environment, payload_command, read_plan, run_to_resume
from .record import read_record

DASHBOARD_TIMEOUT_S = 120.0


def main(folder: Path, job: str, number: int) -> int:
    from payload.experiment import UserError

    try:
        planned = read_plan(folder)
        environment = job_environment(planned, folder)
    except UserError as error:
        print(error, flush=True)
        return REFUSAL
    record = read_record(folder)
    assert record is not None, "the queue starts experiments of its store"
    key = record.key
    blobs = os.environ["RESULTS_CONTAINER"]
    retry(f"{blobs}/runs/{key}", lambda: restore_runs(container(blobs), key))
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
