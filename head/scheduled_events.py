"""Waits for Azure's notices: stops Ray in order, and starts it again if the machine stays.

Workers have this file in customData, so a change of it replaces them. It imports nothing of this
package, and runs on the system's Python.
https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events
"""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

METADATA = "http://169.254.169.254/metadata"
EVENTS = f"{METADATA}/scheduledevents?api-version=2020-07-01"
COMPUTE = f"{METADATA}/instance/compute?api-version=2021-02-01"
LAST = ("Preempt", "Terminate")
STOP_S = {"Preempt": 18.0, "Terminate": 150.0, "Reboot": 150.0, "Redeploy": 150.0}
"""How long what runs has to stop: Azure announces an eviction about 30 s ahead, the others minutes.
A Freeze of seconds stops nothing."""
WORKERS_S = 5.0
POLL_S = 1.0
STAYS_AFTER = 60
"""Polls without an event, after which the machine stays: Azure has withdrawn it, or it is over."""
STOPPED = Path(os.environ.get("RUNTIME_DIRECTORY", "/run/volley-events")) / "stopped"
"""Names the events for which Ray has been stopped; a boot empties the folder and starts Ray."""
NO_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def main() -> None:
    name = ask(COMPUTE)["name"]
    print(f"{name}: waiting for scheduled events", flush=True)
    polls = 0
    while True:
        time.sleep(POLL_S)
        try:
            found = ask(EVENTS).get("Events", [])
            events = [e for e in found if e["EventType"] in STOP_S and name in e["Resources"]]
            polls = 0 if events else polls + 1
            look(events, polls)
        except (OSError, ValueError, LookupError) as error:
            print(f"the metadata service does not answer: {error}", flush=True)
            time.sleep(10 * POLL_S)


def look(events: list[dict[str, Any]], polls: int) -> None:
    """Stops Ray for a new event, and starts it again once there was none for some polls."""
    stopped = STOPPED.read_text().split() if STOPPED.exists() else []
    for event in events:
        # After a reboot, its event is still there for minutes.
        due = event["EventStatus"] == "Scheduled" or event["EventType"] in LAST
        if due and event["EventId"] not in stopped:
            STOPPED.write_text(" ".join([*stopped, event["EventId"]]))
            leave(event)
    if stopped and polls >= STAYS_AFTER:
        print("the machine stays: starting Ray", flush=True)
        subprocess.run(["systemctl", "start", "--no-block", *units()], check=False)
        STOPPED.unlink()


def leave(event: dict[str, Any]) -> None:
    """Stops Ray on this machine, saves the results, and acknowledges the event."""
    kind = event["EventType"]
    print(f"{kind} at {event.get('NotBefore') or 'once'}: stopping Ray", flush=True)
    if kind in LAST:
        send_workers_home()
    stop = ["systemctl", "stop", *units()]
    try:
        subprocess.run(stop, check=False, timeout=STOP_S[kind])
    except subprocess.TimeoutExpired:
        # Trainings have not ended their iteration: what was saved before is saved to Blob now.
        print(f"{units()[0]} has not stopped in {STOP_S[kind]:.0f} s", flush=True)
        subprocess.run(["systemctl", "kill", "--signal=SIGKILL", units()[0]], check=False)
        subprocess.run(stop, check=False)
    if kind in LAST:
        # Ray's autoscaler may have asked for them again until it stopped.
        send_workers_home()
    ask(EVENTS, {"StartRequests": [{"EventId": event["EventId"]}]})


def send_workers_home() -> None:
    """On the head, deletes the workers, which nobody would delete without it."""
    if command := os.environ.get("BEFORE_EVICTION", "").split():
        try:
            subprocess.run(command, check=False, timeout=WORKERS_S)
        except subprocess.TimeoutExpired:
            print("Azure does not answer: the workers stay", flush=True)


def units() -> list[str]:
    return os.environ["STOP_BEFORE_EVICTION"].split()


def ask(url: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """Returns what the metadata service answers; posts `body` if there is one."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Metadata": "true"})
    with NO_PROXY.open(request, timeout=5) as response:
        text = response.read()
    found: dict[str, Any] = json.loads(text) if text else {}
    return found


if __name__ == "__main__":
    main()
