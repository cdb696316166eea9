"""Whether a head that does not answer is asleep: by Azure's status, or by what was remembered."""

import time
from importlib.util import find_spec

from payload.errors import UserError
from volley.errors import not_installed
from volley.private import remember, remembered
from volley.ssh import UnreachableError
from volley.stack import Outputs
from volley.tables import duration

ALSO_MINE = "$(pulumi config get adminCidr),$(curl -s https://api.ipify.org)/32"


class AsleepError(UnreachableError):
    """The head is deallocated, which is a state of a cluster."""


RUNNING, STOPPED = "PowerState/running", "PowerState/stopped"
"""A VM that was shut down from inside is stopped, and bills as if it ran; a sleeping head is
deallocated: https://learn.microsoft.com/azure/virtual-machines/states-billing"""


def remember_sleep(outputs: Outputs, asleep_from: float | None) -> None:
    """Remembers when the cluster goes to sleep, by this machine's clock; None if unknown."""
    remember(_key(outputs), {"asleep_from": asleep_from})


def why_unreachable(outputs: Outputs, error: UnreachableError) -> UserError:
    """Returns the error of a head that does not answer: asleep, or running behind a firewall."""
    try:
        state = _power_state(outputs)
    except UserError as unknown:
        return _remembered(outputs, error, unknown)
    if state == STOPPED:
        return AsleepError(
            "The head was shut down from inside, and Azure bills it as if it ran. "
            "Next: volley start"
        )
    if state != RUNNING:
        return AsleepError("The cluster is asleep. Next: volley start")
    allow = f'pulumi config set adminCidr "{ALSO_MINE}" && volley up'
    return UnreachableError(
        f"{outputs.login}: the head is running but does not answer ({error.reason}). It may still "
        "be booting, or your address is not in adminCidr (pulumi config get adminCidr; "
        f"several addresses are separated by commas). Next: {allow}"
    )


def _power_state(outputs: Outputs) -> str:
    """Asks Azure; raises UserError if it cannot be asked."""
    if find_spec("azure.identity") is None:
        raise not_installed("azure-identity", "infra")
    from volley.head_machine import head_machine

    return head_machine(outputs.head_id).power_state()


def _remembered(outputs: Outputs, error: UnreachableError, unknown: UserError) -> UserError:
    asleep_from = remembered(_key(outputs)).get("asleep_from")
    if asleep_from is not None and asleep_from <= time.time():
        ago = duration(time.time() - asleep_from)
        return AsleepError(f"The cluster went to sleep {ago} ago. Next: volley start")
    return UnreachableError(
        f"{outputs.login}: the head does not answer ({error.reason}). Whether it is asleep is "
        f"unknown: {unknown}"
    )


def _key(outputs: Outputs) -> str:
    return f"sleep-{outputs.head_vm_id}"
