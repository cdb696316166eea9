"""The metadata service's state: the machines and the events that are scheduled for them.

It is a file, since `pulumi up`, the scenario and the service are separate processes.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from rehearsal import shared_file

NOBODY = "00000000-0000-0000-0000-000000000000"
STARTED_S = 5.0
"""How long a started event is still shown; on Azure until the machine is gone."""

EventType = Literal["Freeze", "Reboot", "Redeploy", "Preempt", "Terminate"]
EventStatus = Literal["Scheduled", "Started"]


@dataclass(frozen=True)
class Identity:
    principal_id: str
    tenant_id: str = NOBODY
    resource_id: str = ""


@dataclass(frozen=True)
class Instance:
    name: str
    """The name of its host."""
    address: str
    """Its private address, by which the service identifies it."""
    location: str
    vm_size: str
    resource_group: str
    resource_id: str = ""
    """Empty for a VM that is called like its host."""
    priority: Literal["Regular", "Spot"] = "Regular"
    scale_set: str = ""
    """The scale set's name; empty for a VM outside scale sets."""
    tags: dict[str, str] = field(default_factory=dict)
    identities: dict[str, Identity] = field(default_factory=dict)
    """By client id."""
    subscription_id: str = NOBODY
    subnet: str = ""
    """As 10.42.1.0/24."""
    public_address: str = ""
    user_data: str = ""
    """In base64, as it was declared; it may change in place."""
    vm_id: str = field(default_factory=lambda: str(uuid.uuid4()))


@dataclass(frozen=True)
class ScheduledEvent:
    """An event that Azure announces to machines. All times are seconds since the epoch."""

    event_type: EventType
    resources: tuple[str, ...]
    """The machines' names."""
    not_before: float
    """When it starts, unless a machine acknowledges it earlier."""
    event_id: str = field(default_factory=lambda: str(uuid.uuid4()).upper())
    acknowledged: float | None = None

    def status(self, now: float) -> EventStatus | None:
        """Returns its status; None when it is over."""
        start = min(self.acknowledged or self.not_before, self.not_before)
        if now < start:
            return "Scheduled"
        return "Started" if now < start + STARTED_S else None


@dataclass
class State:
    instances: dict[str, Instance] = field(default_factory=dict)
    """By name."""
    events: dict[str, ScheduledEvent] = field(default_factory=dict)
    """By id."""


def put_instance(state_file: Path, instance: Instance) -> None:
    """Adds a machine or replaces its entry; no two machines may have the same address."""
    with shared_file.changed(state_file, State) as state:
        for other in state.instances.values():
            if other.address == instance.address and other.name != instance.name:
                raise ValueError(f"{instance.address} of {instance.name} is {other.name}'s")
        state.instances[instance.name] = instance


def set_user_data(state_file: Path, name: str, user_data: str) -> None:
    with shared_file.changed(state_file, State) as state:
        state.instances[name] = replace(state.instances[name], user_data=user_data)


def remove_instance(state_file: Path, name: str) -> None:
    """Removes a machine, and the events that concern no other machine."""
    with shared_file.changed(state_file, State) as state:
        state.instances.pop(name, None)
        for event in list(state.events.values()):
            if name in event.resources and not set(event.resources) & set(state.instances):
                del state.events[event.event_id]


def schedule(state_file: Path, event: ScheduledEvent) -> str:
    """Announces an event to its machines; returns its id."""
    with shared_file.changed(state_file, State) as state:
        state.events[event.event_id] = event
    return event.event_id


def acknowledge(state_file: Path, event_ids: set[str]) -> None:
    """Records that a machine has acknowledged events; only the first time counts."""
    with shared_file.changed(state_file, State) as state:
        for event_id in event_ids:
            event = state.events[event_id]
            if event.acknowledged is None:
                state.events[event_id] = replace(event, acknowledged=time.time())


def acknowledged(state_file: Path, event_id: str) -> bool:
    return read(state_file).events[event_id].acknowledged is not None


def read(state_file: Path) -> State:
    """Returns the state in the file; an empty state without a file."""
    return shared_file.read(state_file, State)
