"""A company's Log Analytics workspace, and the boot logs that arrive there."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable

from rehearsal import background_process
from rehearsal.addresses import LOGS_ADDRESS, LOGS_HOST
from rehearsal.azure import certificates, log_ingestion
from rehearsal.azure.resources.azure_stand_in import WORKSPACES
from rehearsal.azure.resources.resource_kinds import KINDS
from rehearsal.backend import Backend, storage_accounts
from rehearsal.host_paths import RESOURCES, ROOT, RUN
from rehearsal.scenario.laptop import ON_THE_INTERNET
from rehearsal.scenario.outcomes import UnexpectedError
from rehearsal.scenario.training_watch import until

LOGS = RUN / "logs"
RAY_STARTED = re.compile("Started ray-(head|worker).service")
ARRIVE_S = 90.0
"""A machine sends its journal each minute."""


def open_workspace(azure: Backend) -> str:
    """Makes a workspace in another region, and starts Azure's API for it; returns its id."""
    group = KINDS["ResourceGroup"].resource_id({"resourceGroupName": "theirs"})
    workspace = f"{group}{WORKSPACES}/company-logs"
    azure.create(
        "azure-native:operationalinsights:Workspace", workspace, {"location": "westeurope"}
    )
    LOGS.mkdir()
    ca = storage_accounts().ca_certificate
    certificates.server_certificate(LOGS, [LOGS_HOST], [], ca)
    # On the internet; `clean` stops everything there.
    arguments = (RESOURCES, LOGS, LOGS_ADDRESS, "443")
    background_process.start(
        [*ON_THE_INTERNET, sys.executable, "-m", log_ingestion.__name__, *arguments],
        pid_file=LOGS / "pid",
        log=LOGS / "log",
        address=LOGS_ADDRESS,
        port=443,
        environment={"PYTHONPATH": str(ROOT)},
    )
    return workspace


def check_arrive(machines: Iterable[str]) -> None:
    """Waits until the boot log of each machine is in the workspace, once."""
    expected = sorted(machines)
    until(lambda: set(_started()) >= set(expected), ARRIVE_S, "boot logs in the workspace")
    if _started() != expected:
        raise UnexpectedError(f"Ray's start is in the workspace for {_started()}")


def _started() -> list[str]:
    """Returns the machine of each row that says that systemd has started Ray."""
    file = LOGS / log_ingestion.ROWS
    rows = map(json.loads, file.read_text().splitlines()) if file.exists() else []
    return sorted(row["Computer"] for row in rows if RAY_STARTED.match(row["SyslogMessage"]))
