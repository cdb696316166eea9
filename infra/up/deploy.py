"""`make up` and `make down`: pulumi, also right after a run that was killed or has failed.

    python -m infra.up.deploy up|destroy [OPTION OF PULUMI ...]

Before pulumi runs, it corrects the stack's state where a killed run has left operations open. After
an error that goes away by itself, it names the reason, waits, and runs pulumi again.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from infra.error_codes import WORKERS_HAVE_CHANGED
from infra.up.pending_operations import (
    name_of,
    pending_operations,
    with_declared_inputs,
    without_pending,
)
from infra.up.pulumi_run import COMMANDS, pulumi

INSTALL = "https://www.pulumi.com/docs/iac/download-install/"
PAUSE_S = 30.0
"""Time between two runs."""
PATIENCE_S = 900.0
"""Total time to wait for Azure."""
TEMPORARY_ERRORS = {
    "InUseSubnetCannotBeDeleted": "network interfaces of deleted machines are still in a subnet",
    "InUseNetworkSecurityGroupCannotBeDeleted": "deleted machines still use an NSG",
    "NicReservedForAnotherVm": "a network interface is reserved for 180 s after a failed creation",
    "NicInUse": "a network interface is still attached to a deleted machine",
    "ContainerBeingDeleted": "a container of the same name is being deleted",
    "StorageAccountAlreadyTaken": "a deleted storage account's name is not free yet",
    "StorageAccountOperationInProgress": "a storage account is still being changed",
    "AnotherOperationInProgress": "another operation on the resource is still running",
    "RetryableError": "another operation on the resource is still running",
}
"""Codes of errors that go away by themselves, and what Azure is busy with."""
REMEDIES = {
    "AzureSpotFeatureNotEnabledForSubscription": "This subscription has no Spot VMs. Next: pulumi "
    "config set workerSpot false (and headSpot false), then volley up",
    "SkuNotAvailable": "Azure does not offer this size here at the moment, or not to this "
    "subscription. Next: pulumi config set headSize or workerSize, or location, then volley up",
}
"""Codes of errors that stay, and what helps."""
POLICY = re.compile(r'policyAssignment\W+name\W+([^"\\]+)')
"""The name of a policy in Azure's RequestDisallowedByPolicy:
https://learn.microsoft.com/azure/azure-resource-manager/troubleshooting/error-policy-requestdisallowedbypolicy"""
EXISTS = "cannot create already existing resource"
NO_STACK = ("no stack selected", "no stack named")


class ExportError(Exception):
    """pulumi could not export the stack's state."""

    def __init__(self, exit_code: int, stderr: str) -> None:
        super().__init__(stderr)
        self.exit_code, self.stderr = exit_code, stderr


def main(arguments: Sequence[str], pause_s: float = PAUSE_S) -> int:
    """Runs pulumi until it succeeds or fails for a reason that waiting does not resolve.

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
        print(f"deploy: pulumi is not on the PATH. To install it: {INSTALL}", file=sys.stderr)
        return 2
    try:
        return prepare(command, options) or _run(command, options, pause_s)
    except ExportError as error:
        print(error.stderr, end="", file=sys.stderr)
        return error.exit_code


def _run(command: str, options: Sequence[str], pause_s: float) -> int:
    deadline = time.monotonic() + PATIENCE_S
    approved: list[str] = []
    while True:
        done = pulumi(command, *options, *approved)
        reasons = [text for code, text in TEMPORARY_ERRORS.items() if code in done.errors]
        scaled = WORKERS_HAVE_CHANGED in done.errors
        if done.exit_code == 0 or not (reasons or scaled) or time.monotonic() > deadline:
            break
        if reasons:
            print(f"Waiting for Azure ({'; '.join(reasons)}), retry in {pause_s:g} s.", flush=True)
            time.sleep(pause_s)
            # Azure was at work, so the user has approved the run; a preview may be refused as well.
            approved = ["--yes", "--skip-preview"]
        if scaled and (failure := refresh_capacity(_exported())):
            return failure
    advise(done.errors)
    return done.exit_code


def prepare(command: str, options: Sequence[str]) -> int | None:
    """Corrects what killed runs and other tools have left; refuses what would lose results.

    Returns:
        An exit code if that failed, otherwise None.
    """
    if stack := stack_of(options):
        os.environ["PULUMI_STACK"] = stack  # Each call of pulumi is about this one.
    if failure := resolve_pending_operations():
        return failure
    state = _exported()
    if subscription := subscription_of_machines(state):
        # Azure's provider would create in the subscription that `az` has selected today.
        os.environ.setdefault("ARM_SUBSCRIPTION_ID", subscription)
    return check_results(state) or refresh_capacity(state) if command == "up" else None


def advise(errors: str) -> None:
    """Prints what helps against errors of pulumi that stay."""
    for code, remedy in REMEDIES.items():
        if code in errors:
            print(remedy, file=sys.stderr)
    if policies := sorted(set(POLICY.findall(errors))):
        print(
            f"A policy of the subscription denies a resource: {', '.join(policies)}. Next: change "
            "the setting for it (docs/azure.md#a-companys-subscription), then volley up",
            file=sys.stderr,
        )
    if EXISTS in errors:
        print(
            "The last `volley down` is unfinished. Next: volley down, then volley up",
            file=sys.stderr,
        )


def resolve_pending_operations() -> int | None:
    """Asks Azure how the operations of a killed run ended; corrects the stack's state.

    Returns:
        pulumi's exit code if that failed, otherwise None.
    """
    state = _exported()
    if state is None:
        return None  # Without a stack, the next run of pulumi explains what is wrong.
    pending = pending_operations(state)
    if not pending:
        return None
    print("The last run was interrupted. Checking in Azure:", flush=True)
    for operation in pending:
        print(f"  {name_of(operation)} ({operation['type']})", flush=True)
    corrected, urns = without_pending(state, subscription_of(state))
    if (failure := _imported(corrected)) or not urns:
        return failure
    if failure := _refreshed(urns):
        return failure
    refreshed = _exported()
    return None if refreshed is None else _imported(with_declared_inputs(refreshed, pending))


def refresh_capacity(state: dict[str, Any] | None) -> int | None:
    """Refreshes the scale set's capacity in the state: infra.stack.workers refuses any other.

    Returns:
        pulumi's exit code if that failed, otherwise None.
    """
    scale_sets = [resource["urn"] for resource in _all(state, ":VirtualMachineScaleSet")]
    return _refreshed(scale_sets) if scale_sets else None


def check_results(state: dict[str, Any] | None) -> int | None:
    """Refuses to use the stack's own account by its id where pulumi would delete it.

    Pulumi would: it is no longer declared, and the last `up` did not say that it stays.

    Returns:
        An exit code, or None.
    """
    own = [
        account for account in _all(state, ":StorageAccount") if not account.get("retainOnDelete")
    ]
    if not own:
        return None
    wanted = pulumi("config", "get", "resultsAccountId", read=True).stdout.strip()
    if not wanted or all(account.get("id", "").lower() != wanted.lower() for account in own):
        return None
    print(
        f"resultsAccountId: {wanted}: is this stack's own account, and up would delete it with the "
        "results. Next: pulumi config rm resultsAccountId, pulumi config set keepResults true, "
        "volley up; then set it again",
        file=sys.stderr,
    )
    return 2


def stack_of(options: Sequence[str]) -> str | None:
    """Returns the stack that options of pulumi name."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("-s", "--stack")
    stack: str | None = parser.parse_known_args(options)[0].stack
    return stack


def subscription_of_machines(state: dict[str, Any] | None) -> str:
    """Returns the subscription of what only the stack's own subscription can have; "" if none."""
    kinds = ":VirtualMachine", ":VirtualMachineScaleSet", ":NetworkInterface"
    return _subscription_in(_all(state, *kinds))


def _subscription_in(resources: Sequence[dict[str, Any]]) -> str:
    """Returns the subscription of the first resource that is in one; "" if none is."""
    matches = (
        re.match(r"/subscriptions/([^/]+)/", resource.get("id", "")) for resource in resources
    )
    return next((match[1] for match in matches if match), "")


def _all(state: dict[str, Any] | None, *kinds: str) -> list[dict[str, Any]]:
    """Returns the resources of a stack whose types end so."""
    resources = (state or {"deployment": {}})["deployment"].get("resources") or []
    return [resource for resource in resources if resource["type"].endswith(kinds)]


def subscription_of(state: dict[str, Any]) -> str:
    """Returns the subscription of the stack's resources, or of the login; empty if unknown."""
    if subscription := _subscription_in(_all(state, "")):
        return subscription
    if "ARM_SUBSCRIPTION_ID" in os.environ:
        return os.environ["ARM_SUBSCRIPTION_ID"]
    subscription = pulumi("config", "get", "azure-native:subscriptionId", read=True).stdout.strip()
    if subscription or not shutil.which("az"):
        return subscription
    account = ["az", "account", "show", "--query", "id", "--output", "tsv"]
    return subprocess.run(account, capture_output=True, text=True, check=False).stdout.strip()


def _refreshed(urns: list[str]) -> int | None:
    """Refreshes resources in the stack's state; returns pulumi's exit code if that failed."""
    targets = [word for urn in urns for word in ("--target", urn)]
    return pulumi("refresh", "--yes", "--skip-preview", *targets).exit_code or None


def _exported() -> dict[str, Any] | None:
    """Returns the stack's state, or None without a stack.

    Raises:
        ExportError: pulumi cannot read it now, so nobody knows what is in the stack.
    """
    exported = pulumi("stack", "export", read=True)
    if exported.exit_code != 0:
        if any(words in exported.stderr for words in NO_STACK):
            return None
        raise ExportError(exported.exit_code, exported.stderr)
    state: dict[str, Any] = json.loads(exported.stdout)
    return state


def _imported(state: dict[str, Any]) -> int | None:
    """Replaces the stack's state; returns pulumi's exit code if that failed."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "state.json"
        file.write_text(json.dumps(state))
        imported = pulumi("stack", "import", "--file", str(file), read=True)
    if imported.exit_code != 0:
        print(imported.stderr, end="", file=sys.stderr)
        return imported.exit_code
    return None


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
