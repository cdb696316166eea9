"""Waits for Azure's notice of an eviction, stops Ray in order, and acknowledges the event.

https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events
"""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.request
from typing import Any

METADATA = "http://169.254.169.254/metadata"
EVENTS = f"{METADATA}/scheduledevents?api-version=2020-07-01"
COMPUTE = f"{METADATA}/instance/compute?api-version=2021-02-01"
LAST = ("Preempt", "Terminate")
POLL_S = 1.0
STOP_S = 18.0
"""How long what runs has to stop: Azure announces an eviction about 30 s ahead."""


def main() -> None:
    name = ask(COMPUTE)["name"]
    print(f"{name}: waiting for scheduled events", flush=True)
    while True:
        time.sleep(POLL_S)
        try:
            events = ask(EVENTS).get("Events", [])
        except (OSError, ValueError) as error:
            print(f"the metadata service does not answer: {error}", flush=True)
            time.sleep(10 * POLL_S)
            continue
        for event in events:
            if event["EventType"] in LAST and name in event["Resources"]:
                leave(event)


def leave(event: dict[str, Any]) -> None:
    """Stops Ray on this machine, saves the results, and acknowledges the event."""
    print(f"{event['EventType']} at {event.get('NotBefore') or 'once'}: stopping Ray", flush=True)
    units = os.environ["STOP_BEFORE_EVICTION"].split()
    stop = ["systemctl", "stop", *units]
    try:
        subprocess.run(stop, check=False, timeout=STOP_S)
    except subprocess.TimeoutExpired:
        # Trainings have not ended their iteration: what was saved before is saved to Blob now.
        print(f"{units[0]} has not stopped in {STOP_S:.0f} s", flush=True)
        subprocess.run(["systemctl", "kill", "--signal=SIGKILL", units[0]], check=False)
        subprocess.run(stop, check=False)
    ask(EVENTS, {"StartRequests": [{"EventId": event["EventId"]}]})


def ask(url: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """Returns what the metadata service answers; posts `body` if there is one."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Metadata": "true"})
    with urllib.request.urlopen(request, timeout=5) as response:
        text = response.read()
    found: dict[str, Any] = json.loads(text) if text else {}
    return found


if __name__ == "__main__":
    main()
