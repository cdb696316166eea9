"""`make up` and `make down`: pulumi, also right after a run of it that was killed or has failed.

    python -m infra.deploy up|destroy [OPTION OF PULUMI ...]

Before pulumi runs, it takes into the stack's state what a killed run has left open. After an error
that Azure gives for a while only, it says what Azure needs, waits, and runs pulumi again.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from infra.resource_ids import RESOURCE_IDS, resource_id

COMMANDS = ("up", "destroy")
INSTALL = "https://www.pulumi.com/docs/iac/download-install/"
PAUSE_S = 30.0
"""Between two runs."""
PATIENCE_S = 900.0
"""How long Azure may need in all."""
NEEDS_TIME = {
    "InUseSubnetCannotBeDeleted": "network interfaces of deleted machines are still in a subnet",
    "InUseNetworkSecurityGroupCannotBeDeleted": "deleted machines still use an NSG",
    "NicReservedForAnotherVm": "a network interface is reserved for 180 s after a failed creation",
    "NicInUse": "a network interface is still attached to a deleted machine",
    "ContainerBeingDeleted": "a container of the same name is being deleted",
    "StorageAccountAlreadyTaken": "a deleted storage account's name is not free yet",
    "StorageAccountOperationInProgress": "a storage account is still being changed",
    "AnotherOperationInProgress": "another operation on the resource has not ended",
    "RetryableError": "another operation on the resource has not ended",
}
"""Codes of errors that end by themselves, and what Azure is busy with."""
EXISTS = "cannot create already existing resource"
LOCK = re.compile(r"created by \S+@(?P<host>\S+) \(pid (?P<pid>\d+)\)")
"""What pulumi says of each lock in a state that lies in files."""
TORN = "failed to load checkpoint: EOF"
AZURE_NATIVE = "azure-native:"


@dataclass(frozen=True)
class Done:
    """How a run of pulumi ended."""

    exit_code: int
    stdout: str
    """Empty unless it was to be read."""
    stderr: str
    errors: str
    """Its diagnostics, which are in the terminal's display."""


def main(arguments: Sequence[str], pause_s: float = PAUSE_S) -> int:
    """Runs pulumi until it has succeeded or Azure's time is not the reason.

    Args:
        arguments: "up" or "destroy", and options of pulumi.
        pause_s: Seconds between two runs.

    Returns:
        pulumi's exit code, or 2 if there is nothing to run.
    """
    command, *options = arguments or [""]
    if command not in COMMANDS:
        print(f"deploy: {command!r}: must be {' or '.join(COMMANDS)}", file=sys.stderr)
        return 2
    if not shutil.which("pulumi"):
        print(
            f"deploy: pulumi is not on the PATH; {INSTALL} says how to install it", file=sys.stderr
        )
        return 2
    refused = take_in_what_is_pending()
    if refused is not None:
        return refused
    deadline = time.monotonic() + PATIENCE_S
    while True:
        done = pulumi(command, *options)
        reasons = [text for code, text in NEEDS_TIME.items() if code in done.errors]
        if done.exit_code == 0 or not reasons or time.monotonic() > deadline:
            break
        print(f"Azure needs time: {'; '.join(reasons)}. Again in {pause_s:g} s.", flush=True)
        time.sleep(pause_s)
        # It was approved the first time.
        options = [*arguments[1:], "--yes", "--skip-preview"]
    if EXISTS in done.errors:
        print("A destroy has not ended: run `make down`, then `make up`.", file=sys.stderr)
    return done.exit_code


def take_in_what_is_pending() -> int | None:
    """Asks Azure how the operations ended in which a run was killed; corrects the stack's state.

    Returns:
        pulumi's exit code if it could not; None if all is well.
    """
    exported = pulumi("stack", "export", read=True)
    if exported.exit_code != 0:
        return None  # There is no stack: what pulumi says to that is for its next run.
    state = json.loads(exported.stdout)
    pending = pending_operations(state)
    if not pending:
        return None
    print("The last run was killed. Asking Azure what has become of:", flush=True)
    for operation in pending:
        print(f"  {name_of(operation)} ({operation['type']})", flush=True)
    corrected, urns = without_pending(state, subscription_of(state))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "state.json"
        file.write_text(json.dumps(corrected))
        imported = pulumi("stack", "import", "--file", str(file), read=True)
    if imported.exit_code != 0:
        print(imported.stderr, end="", file=sys.stderr)
        return imported.exit_code
    if not urns:
        return None
    targets = [word for urn in urns for word in ("--target", urn)]
    asked = pulumi("refresh", "--yes", "--skip-preview", *targets)
    return asked.exit_code or None


def pending_operations(state: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the operations of an exported state in which a run was killed."""
    found: list[dict[str, Any]] = state["deployment"].get("pending_operations") or []
    return found


def name_of(operation: dict[str, Any]) -> str:
    """Returns "VirtualMachine volley-dev-head"."""
    urn = operation["resource"]["urn"]
    return f"{_kind(urn)} {urn.rpartition('::')[2]}"


def subscription_of(state: dict[str, Any]) -> str:
    """Returns the subscription in which the stack's resources are, or will be; empty if unknown."""
    for resource in state["deployment"].get("resources") or []:
        if match := re.match(r"/subscriptions/([^/]+)/", resource.get("id", "")):
            return match[1]
    if "ARM_SUBSCRIPTION_ID" in os.environ:
        return os.environ["ARM_SUBSCRIPTION_ID"]
    configured = pulumi("config", "get", "azure-native:subscriptionId", read=True).stdout.strip()
    if configured or not shutil.which("az"):
        return configured
    account = ["az", "account", "show", "--query", "id", "--output", "tsv"]
    return subprocess.run(account, capture_output=True, text=True, check=False).stdout.strip()


def without_pending(state: dict[str, Any], subscription: str) -> tuple[dict[str, Any], list[str]]:
    """Returns a state without pending operations, and the URNs of which Azure must be asked.

    What was being created is in it as if it existed, under the id that follows from its names.
    """
    deployment = dict(state["deployment"])
    known = list(deployment.get("resources") or [])
    urns = []
    for operation in pending_operations(state):
        resource = dict(operation["resource"])
        urn = resource["urn"]
        kind = _kind(urn)
        if operation["type"] == "creating":
            if kind not in RESOURCE_IDS or not subscription:
                continue  # Not in Azure, or the first resource group, which is empty then.
            resource["id"] = resource_id(kind, resource["inputs"], subscription)
            resource.setdefault("outputs", {})
            known.append(resource)
        if AZURE_NATIVE in resource["type"]:
            urns.append(urn)
    deployment |= {"resources": known, "pending_operations": []}
    return {**state, "deployment": deployment}, urns


def pulumi(*arguments: str, read: bool = False) -> Done:
    """Runs pulumi at this terminal; removes what a killed run has left in its way.

    Args:
        read: Whether to read its output instead of showing it.
    """
    done = _run(arguments, read)
    if done.exit_code != 0 and TORN in done.stderr and remove_torn_attributes():
        done = _run(arguments, read)
    locks = list(LOCK.finditer(done.stderr))
    if (
        done.exit_code != 0
        and locks
        and all(is_dead(lock["host"], int(lock["pid"])) for lock in locks)
    ):
        print("The run that has locked the stack was killed: removing its lock.", flush=True)
        _run(("cancel", "--yes"), read=True)
        done = _run(arguments, read)
    return done


def remove_torn_attributes() -> bool:
    """Removes empty files of attributes beside a state that lies in files.

    Pulumi replaces the state's file at once, but not this one; a state without it is complete.
    """
    url = json.loads(_run(("whoami", "--json"), read=True).stdout or "{}").get("url", "")
    if not url.startswith("file://"):
        return False
    folder = Path(url.removeprefix("file://")).expanduser() / ".pulumi"
    torn = [file for file in folder.rglob("*.attrs") if file.stat().st_size == 0]
    for file in torn:
        print(f"A killed run has left {file} empty: removing it.", flush=True)
        file.unlink()
    return bool(torn)


def is_dead(host: str, pid: int) -> bool:
    """Whether a process of this host is no pulumi that runs; of another host nobody knows."""
    if host != socket.gethostname():
        return False
    command = ["ps", "-p", str(pid), "-o", "comm="]
    running = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return "pulumi" not in running


def _run(arguments: Sequence[str], read: bool) -> Done:
    with tempfile.TemporaryDirectory() as folder:
        events = Path(folder) / "events.json"
        log = ["--event-log", str(events)] if arguments[0] in COMMANDS else []
        stderr: list[str] = []
        with subprocess.Popen(
            ["pulumi", *arguments, *log],
            env={**os.environ, "PULUMI_DEBUG_COMMANDS": "true"},
            stdout=subprocess.PIPE if read else None,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stderr is not None
            copying = threading.Thread(target=_copy, args=(process.stderr, stderr, not read))
            copying.start()
            stdout = process.stdout.read() if process.stdout else ""
            _wait(process)
            copying.join()
        errors = events.read_text() if events.exists() else ""
    return Done(process.returncode, stdout, "".join(stderr), errors)


def _copy(stream: IO[str], kept: list[str], shown: bool) -> None:
    for line in stream:
        kept.append(line)
        if shown:
            print(line, end="", file=sys.stderr, flush=True)


def _wait(process: subprocess.Popen[str]) -> None:
    """Waits to the end; a signal is for pulumi, which ends what it has begun."""
    before = signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    try:
        while process.poll() is None:
            try:
                process.wait()
            except KeyboardInterrupt:
                continue
    finally:
        signal.signal(signal.SIGTERM, before)


def _kind(urn: str) -> str:
    """Returns "Subnet" of a URN."""
    return urn.split("::")[-2].rpartition("$")[2].rpartition(":")[2]


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
