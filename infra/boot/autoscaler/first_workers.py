"""first_workers LEAST FOLDER: asks Azure for the first workers while the head still boots.

Ray's autoscaler comes minutes later, with the head's Python environment; by then they boot, too.
The run command `scaling` starts this with the system's Python, which has requests (for cloud-init).
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import requests

from .cluster_workers import FILE
from .management import ENDPOINT, TIMEOUT_S, Management, ManagementError
from .scale_set import ScaleSet

TOKEN = "http://169.254.169.254/metadata/identity/oauth2/token"
RETRY_FOR_S = 20 * 60.0
"""A role assignment can take ten minutes to propagate."""
PAUSE_S = 3.0


def main(least: int, folder: Path) -> int:
    scale_set_id = json.loads((folder / "cluster-settings.json").read_text())["scale_set"]
    scale_set = ScaleSet(Management(metadata_token, ENDPOINT), scale_set_id)
    end = time.monotonic() + RETRY_FOR_S
    # Once the autoscaler has reported, it asks by itself.
    while not (folder / FILE).exists():
        try:
            ask(scale_set, least, folder)
        except (ManagementError, requests.RequestException) as error:
            print(error, flush=True)
        else:
            return 0
        if time.monotonic() > end:
            return 1
        time.sleep(PAUSE_S)
    return 0


def ask(scale_set: ScaleSet, least: int, folder: Path) -> None:
    """Asks for the workers unless somebody has; leaves the operation to Ray's autoscaler.

    Raises:
        ManagementError: Azure refused, or did not answer.
    """
    known = scale_set.capacity()
    if known.machines > 0:
        return
    operation = scale_set.set_capacity(known, least)
    print(f"Azure was asked for {least} workers", flush=True)
    aside = _operation_file(folder).with_suffix(".new")
    aside.write_text(operation)
    aside.replace(_operation_file(folder))


def take_operation(folder: Path) -> str:
    """Returns the URL of the operation that `ask` has left, once; "" if there is none."""
    try:
        operation = _operation_file(folder).read_text()
        _operation_file(folder).unlink()
    except OSError:
        return ""
    return operation


def metadata_token() -> str:
    """Returns a token of the machine's identity, from Azure's instance metadata service.

    https://learn.microsoft.com/entra/identity/managed-identities-azure-resources/how-to-use-vm-token
    """
    query = {
        "api-version": "2018-02-01",
        "resource": ENDPOINT,
        "client_id": os.environ["AZURE_CLIENT_ID"],
    }
    with requests.Session() as session:
        session.trust_env = False  # The service is behind no proxy.
        answer = session.get(TOKEN, params=query, headers={"Metadata": "true"}, timeout=TIMEOUT_S)
    answer.raise_for_status()
    return str(answer.json()["access_token"])


def _operation_file(folder: Path) -> Path:
    return folder / "first-workers"


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), Path(sys.argv[2])))
