"""Managed run commands: what Azure executes, and what it reports.

- Azure executes a script when its resource is made, and again when the script changes. It does not
  execute the same script under the same name again, whether or not it has failed:
  https://github.com/Azure/azure-sdk-for-net/issues/47307
  https://github.com/MicrosoftDocs/azure-compute-docs/pull/178
- Only instanceView is documented to contain the last 4 KB of output and error; the error of a
  failed deployment is not:
  https://learn.microsoft.com/azure/virtual-machines/linux/run-command-managed
- A started script runs to its end, whether or not a client waits for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from rehearsal.azure.azure_errors import ArmError
from rehearsal.azure.resources.resource_kinds import Properties

RUN_COMMAND = "VirtualMachineRunCommandByVirtualMachine"
GET = "getVirtualMachineRunCommandByVirtualMachine"
RUNNING = "Running"
SHOWN = 4096
"""Azure keeps this many bytes from the end of output and of error."""


@dataclass(frozen=True)
class Execution:
    """How a script ended."""

    exit_code: int = 0
    output: str = ""
    error: str = ""
    timed_out: bool = False

    @property
    def succeeded(self) -> bool:
        return self.exit_code == 0 and not self.timed_out


def started(execution_id: str) -> Properties:
    """Returns the instanceView of a running script."""
    return {"executionState": RUNNING, "startTime": _now(), "executionId": execution_id}


def ended(view: Properties, execution: Execution) -> Properties:
    """Returns the instanceView of a script that has ended; `view` is the one while it ran."""
    state = "Succeeded" if execution.succeeded else "Failed"
    return {
        **view,
        "executionState": "TimedOut" if execution.timed_out else state,
        "exitCode": execution.exit_code,
        "output": execution.output[-SHOWN:],
        "error": execution.error[-SHOWN:],
        "endTime": _now(),
    }


def deployment_error(name: str, execution: Execution) -> ArmError:
    """Returns a deployment's error for a failed script, which lacks the script's output."""
    why = "timed out" if execution.timed_out else f"exited with code {execution.exit_code}"
    message = (
        f"VM has reported a failure when processing extension '{name}' (publisher "
        "'Microsoft.CPlat.Core' and type 'RunCommandHandlerLinux'). Error message: "
        f"'Script {why}.'. More information on troubleshooting is available at "
        "https://aka.ms/VMExtensionCSELinuxTroubleshoot."
    )
    return ArmError("VMExtensionProvisioningError", message, 200)


def _now() -> str:
    return datetime.now(UTC).isoformat()
