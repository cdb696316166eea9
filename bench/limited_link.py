"""Ray on two nodes of this machine, with a network link of a limited rate between them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import ray

from bench.process import MeasurementError
from payload.run.ray_folder import make_ray_folder

NAMESPACE = "volley-bench"
"""The second node's network namespace; the first node's interface has the same name."""
FIRST, SECOND = "10.255.213.1", "10.255.213.2"
STOP_S = 30.0


def why_not() -> str | None:
    """Returns why this machine can't have such a link, or None if it can."""
    if os.geteuid() != 0:
        return "needs root"
    missing = [name for name in ("ip", "tc") if shutil.which(name) is None]
    return f"needs the command {missing[0]}" if missing else None


def add_limit(interface: str, mbit_per_s: float) -> list[str]:
    """Returns the arguments of `tc` that limit what an interface sends."""
    shape = ["tbf", "rate", f"{mbit_per_s:g}mbit", "burst", "256k", "latency", "50ms"]
    return ["qdisc", "add", "dev", interface, "root", *shape]


@contextmanager
def ray_over_link(mbit_per_s: float, cpus: int) -> Iterator[None]:
    """Starts Ray: this process on a node without CPUs, `cpus` on a node behind the link.

    Raises MeasurementError if the machine can't, or if another benchmark has the link.
    """
    if (reason := why_not()) is not None:
        raise MeasurementError(f"a network link of a limited rate {reason}")
    if processes := _processes():
        raise MeasurementError(f"{NAMESPACE} is in use, by process {processes[0]}")
    _remove()
    try:
        _make(mbit_per_s)
        ray.init(
            address="local",
            num_cpus=0,
            include_dashboard=False,
            log_to_driver=False,
            _node_ip_address=FIRST,
            _temp_dir=str(make_ray_folder()),
        )
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block"]
        command += [f"--address={ray.get_runtime_context().gcs_address}"]
        command += [f"--node-ip-address={SECOND}", f"--num-cpus={cpus}"]
        with subprocess.Popen(["ip", "netns", "exec", NAMESPACE, *command]) as node:
            try:
                yield
            finally:
                node.terminate()
                node.wait(STOP_S)
    finally:
        for process in _processes():
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        _remove()


def _make(mbit_per_s: float) -> None:
    inside = ["ip", "-n", NAMESPACE]
    _run("ip", "netns", "add", NAMESPACE)
    _run("ip", "link", "add", NAMESPACE, "type", "veth", "peer", "eth0", "netns", NAMESPACE)
    _run("ip", "address", "add", f"{FIRST}/30", "dev", NAMESPACE)
    _run(*inside, "address", "add", f"{SECOND}/30", "dev", "eth0")
    _run("ip", "link", "set", NAMESPACE, "up")
    for name in ("lo", "eth0"):
        _run(*inside, "link", "set", name, "up")
    _run("tc", *add_limit(NAMESPACE, mbit_per_s))
    _run("tc", "-n", NAMESPACE, *add_limit("eth0", mbit_per_s))


def _remove() -> None:
    """Removes the link, even one that a killed benchmark has left."""
    if _is_there():
        _run("ip", "netns", "del", NAMESPACE)


def _processes() -> list[int]:
    """Returns the processes of the second node."""
    return list(map(int, _run("ip", "netns", "pids", NAMESPACE).split())) if _is_there() else []


def _is_there() -> bool:
    return NAMESPACE in _run("ip", "netns", "list").split()


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise MeasurementError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
