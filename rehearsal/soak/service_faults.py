"""Faults of the services that the cluster needs: Blob, MLflow and the machines' tokens."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from functools import partial

from infra.ports import MLFLOW
from rehearsal.azure.blob.blob_faults import Mode
from rehearsal.azure.metadata import metadata_service
from rehearsal.backend import storage_accounts
from rehearsal.host_paths import METADATA, ROOT, RUN
from rehearsal.soak import faulty_mlflow
from rehearsal.soak.faults import Cluster, Fault
from rehearsal.soak.machine_faults import network_rules

AWAY_S = (30.0, 600.0)
"""The shortest and the longest time that a service is away."""
TOKENS_AWAY_S = 60.0
PROXY_PORT = 5999
NOT_ROOT = f"tcp dport {MLFLOW} meta skuid != 0"
"""The packets of MLflow's clients; the proxy runs as root."""


def service_faults() -> list[Fault]:
    return [
        Fault("Blob answers 503", "Blob", partial(blob, "busy")),
        Fault("Blob's answers are lost", "Blob", partial(blob, "lost")),
        Fault("MLflow answers 503", "MLflow", partial(mlflow, "busy")),
        Fault("MLflow's answers are lost", "MLflow", partial(mlflow, "lost")),
        Fault("no tokens", "tokens", no_tokens),
    ]


def blob(mode: Mode, cluster: Cluster) -> str:
    seconds = cluster.random.uniform(*AWAY_S)
    storage_accounts().fail(mode)
    try:
        time.sleep(seconds)
    finally:
        storage_accounts().fail("ok")
    return f"for {seconds:.0f} s"


def mlflow(mode: Mode, cluster: Cluster) -> str:
    """Puts a proxy in front of MLflow on the head; its open connections are reset."""
    head, seconds = cluster.context.head, cluster.random.uniform(*AWAY_S)
    proxy = [sys.executable, "-m", faulty_mlflow.__name__, str(PROXY_PORT), str(MLFLOW), mode]
    inside = ["nsenter", "-t", str(head.leader), "-n"]
    with subprocess.Popen([*inside, *proxy], cwd=ROOT) as process:
        try:
            reset = {"output": f"{NOT_ROOT} reject with tcp reset"}
            with network_rules(head, reset, f"{NOT_ROOT} redirect to :{PROXY_PORT}"):
                time.sleep(seconds)
        finally:
            process.send_signal(signal.SIGKILL)
    return f"for {seconds:.0f} s"


def no_tokens(_: Cluster) -> str:
    """Ends the metadata service, which gives the tokens of managed identities."""
    metadata_service.stop(METADATA)
    try:
        time.sleep(TOKENS_AWAY_S)
    finally:
        metadata_service.start(METADATA, RUN / "metadata.log")
    return f"for {TOKENS_AWAY_S:.0f} s"
