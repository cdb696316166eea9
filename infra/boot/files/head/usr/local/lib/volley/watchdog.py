"""Deallocates this head when nothing on it looks after what the cluster costs.

head.sleep does that, and leaves a time in CHECKED whenever it works. This is for a head without
it: its boot has failed, its disk is full. The limits are in the VM's userData, which can change.
https://learn.microsoft.com/azure/virtual-machines/user-data
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

from machine_token import REQUEST_S, metadata, token

RUN = Path(os.environ.get("RUNTIME_DIRECTORY", "/run/volley"))
"""A boot empties it, and a full disk does not fill it."""
STARTED, CHECKED = RUN / "started", RUN / "checked"
AZURE = "https://management.azure.com"
WORKS_S = 3600.0
"""How long after a check that worked head.sleep keeps the limits itself."""
GRACE_S = 900.0
"""As in head.sleep: time for a person to raise the budget."""
STOP_S = 300.0
NOT_FOUND = 404


def main() -> None:
    now = time.monotonic()
    if not STARTED.exists():
        STARTED.write_text(str(now))
    started = float(STARTED.read_text())
    # Without userData, Azure's own rules scale the workers and nothing sleeps.
    limits = json.loads(base64.b64decode(instance("userData")) or "{}")
    checked, so_far, per_hour = started, 0.0, limits.get("per_hour", 0.0)
    if CHECKED.exists():
        checked, so_far, per_hour = json.loads(CHECKED.read_text()).values()
    spent = so_far + (now - checked) / 3600 * per_hour
    why = limits and reason(limits, now - started, now - checked, spent)
    if why:
        print(f"deallocating this head: {why}", flush=True)
        deallocate(limits["workers"])


def reason(limits: dict[str, Any], up_s: float, silent_s: float, spent: float) -> str:
    """Returns why the head must not run any longer; "" if it may."""
    if 0 < 3600 * limits["silent_hours"] <= silent_s:
        return f"no check of head.sleep has worked for {silent_s / 3600:.1f} h"
    if silent_s < min(WORKS_S, up_s):
        return ""
    if 0 < 3600 * limits["max_hours"] <= up_s:
        return f"maxHours: {limits['max_hours']}"
    if 0 < limits["budget"] <= spent and up_s >= GRACE_S:
        return f"budget: {limits['budget']} dollars"
    return ""


def deallocate(workers: str) -> None:
    """Deletes the workers and deallocates the head; raises OSError if Azure refuses."""
    head, units = instance("resourceId"), os.environ["STOP_BEFORE_EVICTION"].split()
    scale_set = f"{head.rpartition('/virtualMachines/')[0]}/virtualMachineScaleSets/{workers}"
    try:
        sku = azure("GET", scale_set)["sku"]  # Nothing is stopped for an Azure that refuses.
    except HTTPError as error:
        if error.code != NOT_FOUND:
            raise
        sku = None  # `up` has failed before it made the workers.
    with suppress(subprocess.TimeoutExpired):
        subprocess.run(["systemctl", "stop", *units], check=False, timeout=STOP_S)
    try:
        with suppress(OSError):
            if sku:
                azure("PATCH", scale_set, {"sku": {**sku, "capacity": 0}})
        azure("POST", f"{head}/deallocate", {})
    except OSError:
        subprocess.run(["systemctl", "start", "--no-block", *units], check=False)
        raise


def instance(part: str) -> str:
    """Returns a part of what the metadata service says of this machine."""
    version = {"api-version": "2021-02-01", "format": "text"}
    return str(metadata(f"instance/compute/{part}", **version).decode())


def azure(method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {token(AZURE)}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    url = f"{AZURE}{path}?api-version=2024-07-01"
    request = urllib.request.Request(url, data, headers, method=method)
    with urllib.request.urlopen(request, timeout=REQUEST_S) as answer:
        content: dict[str, Any] = json.loads(answer.read() or "{}")
        return content


if __name__ == "__main__":
    main()
