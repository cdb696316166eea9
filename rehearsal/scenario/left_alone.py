"""Acts in which nobody looks: the boot of a head has failed, or workers have lost their head.

The limits of three hours are moved to now, in what Azure has.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime

from rehearsal.azure.resources.resource_kinds import all_of
from rehearsal.backend import Backend
from rehearsal.machines.nspawn_machine import all_machines
from rehearsal.scenario.context import Context
from rehearsal.scenario.outcomes import UnexpectedError
from rehearsal.scenario.training_watch import until

WATCHDOG = "head-watchdog.service"
NOW_HOURS = 0.001
CHECKED_HOURS = 0.1
"""The check runs every minute."""


def watchdog_deallocates(context: Context) -> str:
    """Lets the watchdog run as it would three hours later."""
    with silent_hours(NOW_HOURS):
        context.head.run("systemctl", "start", "--no-block", WATCHDOG)
        off = until(lambda: context.head.power == "off", 120, "the watchdog deallocates the head")
    return f"its watchdog deallocated the head {off:.0f} s after the limit"


def watchdog_stays_away(context: Context) -> str:
    """Lets the watchdog run on a head whose checks work."""
    with silent_hours(CHECKED_HOURS):
        context.head.run("systemctl", "start", WATCHDOG, timeout_s=120)
    if context.head.power != "on":
        raise UnexpectedError("the watchdog has deallocated a head whose checks work")
    return "the watchdog left the head alone"


def workers_without_a_head(context: Context) -> str:
    """Cuts the head's power, and ends the lease of its workers."""
    context.head.kill()
    (setting_id,) = all_of(Backend().resources(), "AutoscaleSetting")
    with Backend().changing() as state:
        setting = state.resources[setting_id]
        default, leased = setting.inputs["profiles"]
        dates = {**leased["fixedDate"], "end": datetime.now(UTC).isoformat()}
        profiles = [default, {**leased, "fixedDate": dates}]
        inputs = {**setting.inputs, "profiles": profiles}
        state.resources[setting_id] = replace(setting, inputs=inputs)
    gone = until(lambda: len(all_machines()) == 1, 60, "Azure deletes the workers")
    context.head.start()
    booted = until(context.head.cloud_init_done, 120, "the head is up again")
    return f"Azure deleted the workers within {gone:.0f} s; the head was up after {booted:.0f} s"


@contextmanager
def silent_hours(hours: float) -> Iterator[None]:
    """Changes a limit in the head's userData for a while."""
    (head_id,) = all_of(Backend().resources(), "VirtualMachine")
    before = Backend().resources()[head_id].inputs["userData"]
    limits = {**json.loads(base64.b64decode(before)), "silent_hours": hours}
    _set_user_data(head_id, base64.b64encode(json.dumps(limits).encode()).decode())
    try:
        yield
    finally:
        _set_user_data(head_id, before)


def _set_user_data(head_id: str, user_data: str) -> None:
    with Backend().changing() as state:
        head = state.resources[head_id]
        state.resources[head_id] = replace(head, inputs={**head.inputs, "userData": user_data})
