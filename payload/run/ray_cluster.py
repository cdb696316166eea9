"""Connects to Ray, a local one of our own or a running cluster, watches it, and leaves it."""

import atexit
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from payload.environments.conda_worker import LOCK, machine_prefix
from payload.environments.every_node import on_every_node
from payload.environments.machine_requirements import SHARED_MEMORY, check_machine
from payload.errors import TemporaryError, UserError
from payload.experiment.placement import Cluster
from payload.experiment.settings import Experiment
from payload.processes import kill
from payload.room import Node
from payload.run.ray_folder import make_ray_folder, remove_ray_folder
from payload.run.terminal import redirect_output, restore_output

GCS_GONE_AFTER_S = 5.0
"""Nodes of volley's cluster exit after 10 s without a GCS (ray.env), and drivers with them."""
OBJECT_STORE_BYTES = 2**30
"""Of a machine without shared memory."""
SLOW_START = "timed out during startup"
"""Part of the message of an exception in ray._private.node.Node."""
END_S = 5.0
"""Time for the processes of a local Ray to end after SIGKILL."""


_joined = threading.Event()
"""Set while there is a cluster for `disconnect` to leave."""


def is_job() -> bool:
    """Whether `ray job submit` has started this process, with a runtime_env of its own."""
    return "RAY_JOB_CONFIG_JSON_ENV_VAR" in os.environ


def available_cpus() -> int:
    """Returns the CPUs that this process may use: on Linux its cpuset or taskset, else all."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def this_machine() -> Cluster:
    """Returns what Ray will have if it starts here; its GPUs are unknown before."""
    return Cluster([Node(available_cpus(), gpus=None)], local=True)


def connect(address: str | None, runtime_env: dict[str, Any] | None = None) -> Cluster:
    """Starts Ray on this machine, or joins the cluster at `address`.

    Without an address, a Ray that this process has initialized is used and not shut down.

    Args:
        runtime_env: The workers' environment; None in a job, which has its own.

    Raises:
        UserError: No cluster answers at `address`, or it does not let this process in.
        TemporaryError: In a job, its own cluster does not answer; or Ray does not start in time.
    """
    import ray

    # Fixed threads in every worker: an env runner owns as many cores as it was given.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    # Ray gives up after 30 s, which a first start from a slow disk can take.
    os.environ.setdefault("RAY_gcs_server_port_wait_time_s", "120")
    # It would print that the cluster requires a token, which is the default.
    logging.getLogger("ray._private.authentication").setLevel(logging.ERROR)
    if address is None and not ray.is_initialized():
        folder = make_ray_folder()
        # "local": a plain ray.init() would join any cluster that runs on this machine.
        with _signals_kept_from_ray(), too_slow_is_told():
            ray.init(
                address="local",
                num_cpus=available_cpus(),
                include_dashboard=False,
                logging_level=logging.WARNING,
                runtime_env=runtime_env,
                _temp_dir=str(folder),
                **_object_store(folder),
            )
        _joined.set()
    elif address is not None:
        _join(address, runtime_env)
        _joined.set()
    resources = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    nodes = [Node(int(has.get("CPU", 0)), has.get("GPU", 0.0)) for has in resources]
    return Cluster(nodes, local=address is None)


def _object_store(folder: Path) -> dict[str, Any]:
    """Returns arguments of ray.init for a Linux without /dev/shm, where it would raise an error."""
    if sys.platform != "linux" or SHARED_MEMORY.is_dir():
        return {}
    # Both, or Ray looks at /dev/shm for the other one.
    return {"_plasma_directory": str(folder), "object_store_memory": OBJECT_STORE_BYTES}


def check_nodes(experiment: Experiment) -> None:
    """Raises an error for the first node of the cluster that lacks what the experiment needs.

    Ray itself would try again and again to start env runners there.

    Raises:
        UserError: A node lacks a package, memory or a program.
        TemporaryError: A node cannot download a conda package.
    """
    import ray

    conda = experiment.conda_packages or experiment.conda_dependencies_file
    if not (experiment.apt_packages or experiment.shm_size or experiment.run_under or conda):
        return
    # Without run_under and conda_worker.py, which may be what fails.
    plain = None if experiment.image else {"py_executable": sys.executable}
    for answer, name in on_every_node(_problem, experiment, runtime_env=plain).items():
        # Ignore a node that goes away meanwhile.
        with suppress(ray.exceptions.RayError):
            if error := ray.get(answer):
                raise type(error)(f"{error} ({name})")


def _problem(experiment: Experiment) -> UserError | TemporaryError | None:
    """Returns what this machine lacks; installs its conda packages."""
    try:
        check_machine(experiment)
        if (lock := Path(LOCK)).exists():
            machine_prefix(lock)
    except (UserError, TemporaryError) as error:
        return error
    return None


@contextmanager
def watch_gcs(on_loss: Callable[[str], None]) -> Iterator[None]:
    """Calls `on_loss` with a reason, in a thread, if the cluster loses its GCS inside.

    Without the GCS, Ray would abort this process.
    """
    import ray

    address = ray.get_runtime_context().gcs_address
    over = threading.Event()

    def watch() -> None:
        seen = time.monotonic()
        while not over.wait(1.0):
            if _answers(address):
                seen = time.monotonic()
            elif time.monotonic() - seen > GCS_GONE_AFTER_S:
                on_loss(f"Ray's head is gone: no GCS answers at {address}")
                return

    threading.Thread(target=watch, name="gcs-watch", daemon=True).start()
    try:
        yield
    finally:
        over.set()


def disconnect(exit_code: int) -> None:
    """Leaves the cluster that `connect` joined; a Ray that it started ends with all processes.

    Args:
        exit_code: Exit code of this process. If the GCS is gone, the process exits with it and
            skips Ray's own shutdown, which would wait for the GCS. Until then it may use Ray.
    """
    import ray
    from ray._private import worker

    if not _answers(ray.get_runtime_context().gcs_address):
        atexit.register(exit_at_once, exit_code)
        return
    if not _joined.is_set():
        return
    _joined.clear()
    node = worker._global_node
    assert node is not None
    of_ray: list[psutil.Process] = []
    for started in node.all_processes.values():
        for info in started:
            # They block SIGTERM: Ray would wait a second for each.
            info.process.terminate = info.process.kill
            with suppress(psutil.Error):
                process = psutil.Process(info.process.pid)
                of_ray += [process, *process.children(recursive=True)]
    ray.shutdown()
    kill(of_ray)
    psutil.wait_procs(of_ray, END_S)
    remove_ray_folder()


def exit_at_once(exit_code: int) -> None:
    """Exits without Ray's shutdown; the processes of a local Ray are killed."""
    below = psutil.Process().children(recursive=True)
    kill(below)
    psutil.wait_procs(below, END_S)
    remove_ray_folder()
    os._exit(exit_code)


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=2.0).close()
    except OSError:
        return False
    return True


@contextmanager
def too_slow_is_told() -> Iterator[None]:
    """Replaces Ray's traceback if its raylet takes more than 30 s to start, a constant in Ray.

    Raises:
        TemporaryError: Ray did not start in time.
    """
    try:
        yield
    except Exception as error:
        if SLOW_START not in str(error):
            raise
        raise TemporaryError(
            "Ray did not start within 30 s: other programs are using this machine's CPUs or disk. "
            "Next: repeat the command when they are done"
        ) from None


@contextmanager
def _signals_kept_from_ray() -> Iterator[None]:
    """Blocks SIGTERM and SIGHUP in Ray's processes, which inherit the mask of this one.

    `timeout`, Slurm, systemd and a closing terminal send them to every process of a group. Ray
    itself blocks SIGINT in the same way.
    """
    old = signal.getsignal(signal.SIGTERM)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGHUP})
    try:
        yield
    finally:
        # Ray's own handler ends Ray and exits with 1.
        signal.signal(signal.SIGTERM, old)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _join(address: str, runtime_env: dict[str, Any] | None) -> None:
    import ray

    # With less, Ray would abort this process before GCS_GONE_AFTER_S.
    os.environ.update(RAY_gcs_rpc_server_reconnect_timeout_s="120")
    if address != "auto":
        _check_answers(address)
    try:
        ray.init(address=address, logging_level=logging.WARNING, runtime_env=runtime_env)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise _no_cluster(address, " ".join(str(error).split())) from None


def _check_answers(address: str) -> None:
    """Raises UserError unless a Ray cluster at HOST:PORT takes this process's token.

    ray.init would retry for 20 s, or for minutes where nothing listens, and print every attempt.
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


def _no_cluster(address: str, reason: str) -> UserError | TemporaryError:
    if is_job():
        return TemporaryError(f"Ray does not answer: {reason}")
    return UserError(
        f"--address {address}: no Ray cluster answers ({reason}); "
        "leave it out to train on this machine"
    )
