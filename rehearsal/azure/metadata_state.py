"""What the metadata service knows: machines, and what is scheduled for them.

It is a file, for `pulumi up`, the play and the service are processes of their own. They
write the state; the service writes which events were acknowledged to another file beside it.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from rehearsal import shared_file

NOBODY = "00000000-0000-0000-0000-000000000000"
STARTED_S = 5.0
"""How long an event that has started is still shown; on Azure until the machine is gone."""

EventType = Literal["Freeze", "Reboot", "Redeploy", "Preempt", "Terminate"]
EventStatus = Literal["Scheduled", "Started"]


@dataclass(frozen=True)
class Identity:
    """A user-assigned identity."""

    principal_id: str
    tenant_id: str = NOBODY
    resource_id: str = ""


@dataclass(frozen=True)
class Instance:
    """A virtual machine, be it of a scale set or not."""

    name: str
    address: str
    """The private one, by which the service knows who asks."""
    location: str
    vm_size: str
    resource_group: str
    priority: Literal["Regular", "Spot"] = "Regular"
    scale_set: str = ""
    """Its name; empty for a machine of its own."""
    tags: dict[str, str] = field(default_factory=dict)
    identities: dict[str, Identity] = field(default_factory=dict)
    """By client id."""
    subscription_id: str = NOBODY
    subnet: str = ""
    """As 10.42.1.0/24."""
    public_address: str = ""
    vm_id: str = field(default_factory=lambda: str(uuid.uuid4()))


@dataclass(frozen=True)
class ScheduledEvent:
    """Something that Azure will do to machines."""

    event_type: EventType
    resources: tuple[str, ...]
    """The machines' names."""
    not_before: float
    """Seconds since the epoch; a machine that acknowledges the event makes it start sooner."""
    event_source: Literal["Platform", "User"] = "Platform"
    description: str = ""
    duration_s: int = -1
    event_id: str = field(default_factory=lambda: str(uuid.uuid4()).upper())


@dataclass
class State:
    """All of the file."""

    instances: dict[str, Instance] = field(default_factory=dict)
    """By name."""
    events: dict[str, ScheduledEvent] = field(default_factory=dict)
    """By id."""


def put_instance(state_file: Path, instance: Instance) -> None:
    """Makes a machine known, or changes what is known of it.

    Raises:
        ValueError: Another machine has its address.
    """
    with _changed(state_file) as state:
        for other in state.instances.values():
            if other.address == instance.address and other.name != instance.name:
                raise ValueError(f"{instance.address} of {instance.name} is {other.name}'s")
        state.instances[instance.name] = instance


def remove_instance(state_file: Path, name: str) -> None:
    """Forgets a machine, and the events that were its own."""
    with _changed(state_file) as state:
        state.instances.pop(name, None)
        for event in list(state.events.values()):
            if name in event.resources and not set(event.resources) & set(state.instances):
                del state.events[event.event_id]


def schedule(state_file: Path, event: ScheduledEvent) -> str:
    """Lets the machines see an event; returns its id."""
    with _changed(state_file) as state:
        state.events[event.event_id] = event
    return event.event_id


def acknowledged(state_file: Path, event_id: str) -> bool:
    """Says whether a machine has asked Azure to start the event."""
    return event_id in acknowledgements(state_file)


def read(state_file: Path) -> State:
    """Returns what the file says; nothing is known where there is none."""
    try:
        found = json.loads(state_file.read_text())
    except FileNotFoundError:
        return State()
    instances = [_instance(one) for one in found["instances"]]
    events = [ScheduledEvent(**{**e, "resources": tuple(e["resources"])}) for e in found["events"]]
    return State({one.name: one for one in instances}, {one.event_id: one for one in events})


def acknowledgements(state_file: Path) -> dict[str, float]:
    """Returns when events were acknowledged, by id, in seconds since the epoch."""
    try:
        found: dict[str, float] = json.loads(_acknowledgement_file(state_file).read_text())
    except FileNotFoundError:
        return {}
    return found


def acknowledge(state_file: Path, event_ids: set[str]) -> None:
    """What the service does when a machine asks for the start of events."""
    file = _acknowledgement_file(state_file)
    with shared_file.locked(file):
        now = time.time()
        known = dict.fromkeys(event_ids, now) | acknowledgements(state_file)
        shared_file.replace(file, json.dumps(known))


def status(event: ScheduledEvent, acknowledged_at: float | None, now: float) -> EventStatus | None:
    """Returns how far an event is; None when it is over. Times are seconds since the epoch."""
    start = event.not_before if acknowledged_at is None else min(acknowledged_at, event.not_before)
    if now < start:
        return "Scheduled"
    return "Started" if now < start + STARTED_S else None


def _instance(found: dict[str, Any]) -> Instance:
    identities = {key: Identity(**one) for key, one in found["identities"].items()}
    return Instance(**{**found, "identities": identities})


@contextmanager
def _changed(state_file: Path) -> Iterator[State]:
    with shared_file.locked(state_file):
        state = read(state_file)
        yield state
        lists = {
            "instances": [asdict(one) for one in state.instances.values()],
            "events": [asdict(one) for one in state.events.values()],
        }
        shared_file.replace(state_file, json.dumps(lists))


def _acknowledgement_file(state_file: Path) -> Path:
    return state_file.with_suffix(".acknowledged.json")
