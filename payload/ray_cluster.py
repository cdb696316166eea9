"""Connecting to Ray: a local one of our own, or a cluster that runs already."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from payload.errors import UserError


def available_cpus() -> int:
    """CPUs that this process may use (a container's or taskset's share)."""
    return len(os.sched_getaffinity(0))


def connect(address: str | None) -> tuple[int, float]:
    """Starts Ray on this machine, or joins the cluster at `address`.

    Returns:
        The cluster's CPUs and GPUs.

    Raises:
        UserError: No cluster answers at `address`.
    """
    import ray

    # Fixed threads in every worker: an env runner owns as many cores as it was given.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    # It would announce on the terminal that the cluster asks for a token, which is the default.
    logging.getLogger("ray._private.authentication").setLevel(logging.ERROR)
    if address is None:
        # "local": a plain ray.init() would join whatever cluster runs on this machine.
        ray.init(
            address="local",
            num_cpus=available_cpus(),
            include_dashboard=False,
            logging_level=logging.WARNING,
        )
    else:
        try:
            ray.init(
                address=address,
                logging_level=logging.WARNING,
                # A job that `ray job submit` started has brought the package along.
                runtime_env=None
                if "RAY_JOB_CONFIG_JSON_ENV_VAR" in os.environ
                else {"py_modules": [str(Path(__file__).parent)]},
            )
        except (ConnectionError, ValueError) as error:
            reason = str(error).splitlines()[0]
            raise UserError(
                f"--address {address}: no Ray cluster answers ({reason}); "
                "leave it out to train on this machine"
            ) from None
    resources = ray.cluster_resources()
    return int(resources.get("CPU", 0)), resources.get("GPU", 0.0)
