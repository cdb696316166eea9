"""Connecting to Ray: a local one of our own, or a cluster that runs already."""

from __future__ import annotations

import logging
import os
import socket
from pathlib import Path

from payload.errors import UserError
from payload.experiment.placement import Cluster, Node
from payload.run.run_folder import redirect_output, restore_output


def available_cpus() -> int:
    """CPUs that this process may use: on Linux a container's or taskset's share, else all."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def this_machine() -> Cluster:
    """What Ray will have when it starts here; its GPUs are not known before."""
    return Cluster([Node(available_cpus(), gpus=None)], local=True)


def connect(address: str | None) -> Cluster:
    """Starts Ray on this machine, or joins the cluster at `address`.

    Raises:
        UserError: No cluster answers at `address`, or it does not let this process in.
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
        _join(address)
    resources = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    nodes = [Node(int(has.get("CPU", 0)), has.get("GPU", 0.0)) for has in resources]
    return Cluster(nodes, local=address is None)


def _join(address: str) -> None:
    import ray

    if address != "auto":
        _check_answers(address)
    try:
        ray.init(
            address=address,
            logging_level=logging.WARNING,
            # A job that `ray job submit` started has brought the package along.
            runtime_env=None
            if "RAY_JOB_CONFIG_JSON_ENV_VAR" in os.environ
            else {"py_modules": [str(Path(__file__).parents[1])]},
        )
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise _no_cluster(address, " ".join(str(error).split())) from None


def _check_answers(address: str) -> None:
    """Raises UserError unless a Ray cluster at HOST:PORT takes this process's token.

    ray.init would go on for 20 s, or for minutes where nothing listens, and print every attempt.
    """
    from ray._raylet import GcsClient  # type: ignore[attr-defined]
    from ray.exceptions import AuthenticationError, RpcError

    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdecimal() or int(port) > 0xFFFF:
        raise UserError(f"--address {address}: is neither auto nor HOST:PORT")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=5.0).close()
    except OSError as error:
        raise _no_cluster(address, error.strerror or str(error)) from None
    output = redirect_output(Path(os.devnull))
    try:
        GcsClient(address=address)
    except AuthenticationError:
        raise UserError(
            f"--address {address}: the cluster asks for its own token; set RAY_AUTH_MODE=token "
            "and RAY_AUTH_TOKEN_PATH to a file that holds it"
        ) from None
    except RpcError as error:
        raise _no_cluster(address, str(error)) from None
    finally:
        restore_output(output)


def _no_cluster(address: str, reason: str) -> UserError:
    return UserError(
        f"--address {address}: no Ray cluster answers ({reason}); "
        "leave it out to train on this machine"
    )
