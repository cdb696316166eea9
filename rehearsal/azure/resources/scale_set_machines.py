"""The machines of a scale set in Flexible orchestration: their names, states and times.

The scale set's instance view holds them. A change that takes a while is kept as its end time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, replace

from rehearsal.azure.resources.resource_kinds import Properties, Resource


@dataclass(frozen=True)
class SetMachine:
    """A machine of a scale set. All times are seconds since the epoch."""

    name: str
    """Unique: no machine gets the name of another that is gone."""
    place: int
    """Index of its address among the subnet's addresses for machines."""
    created: float
    ready: float
    """When it is provisioned."""
    gone: float | None = None
    """When it is deleted; None for a machine that stays."""
    error: str = ""
    """Azure's error code if its provisioning fails."""
    joins: bool = True
    deallocated: bool = False
    size: str = ""
    """Empty: the scale set's first size."""

    def state(self, now: float) -> str:
        if self.gone is not None:
            return "Deleting"
        if now < self.ready:
            return "Creating"
        return "Failed" if self.error else "Succeeded"

    def is_up(self, now: float) -> bool:
        """Whether it boots with its customData; a deallocated one has no power all the while."""
        return self.state(now) == "Succeeded" and self.joins


def machines_of(scale_set: Resource, now: float) -> list[SetMachine]:
    """Returns the machines that exist, including those that are being deleted."""
    machines = [SetMachine(**values) for values in scale_set.instance_view.get("machines", [])]
    return [machine for machine in machines if machine.gone is None or now < machine.gone]


def with_machines(scale_set: Resource, machines: Iterable[SetMachine]) -> Resource:
    """Returns the scale set with these machines and no others."""
    view = {**scale_set.instance_view, "machines": [asdict(machine) for machine in machines]}
    return replace(scale_set, instance_view=view)


def with_more(
    scale_set: Resource,
    count: int,
    now: float,
    ready: float,
    errors: Collection[str] = (),
    never_join: int = 0,
    size: str = "",
) -> Resource:
    """Returns the scale set with `count` more machines, at the lowest free addresses.

    It adds one failed machine for each of `errors`.
    """
    machines = machines_of(scale_set, now)
    made = int(scale_set.instance_view.get("made", 0))
    prefix = scale_set.inputs["virtualMachineProfile"]["osProfile"]["computerNamePrefix"]
    for number, error in enumerate([""] * count + list(errors)):
        taken = {machine.place for machine in machines}
        place = next(place for place in range(len(machines) + 1) if place not in taken)
        joins = number >= never_join and not error
        name = f"{prefix}{made + number}"
        machines.append(SetMachine(name, place, now, ready, error=error, joins=joins, size=size))
    made += count + len(errors)
    view = {**scale_set.instance_view, "made": made}
    return with_machines(replace(scale_set, instance_view=view), machines)


def without(scale_set: Resource, names: Collection[str], now: float, gone: float) -> Resource:
    """Returns the scale set whose named machines are being deleted, and are gone later."""
    return with_machines(
        scale_set,
        [
            replace(machine, gone=gone)
            if machine.name in names and machine.gone is None
            else machine
            for machine in machines_of(scale_set, now)
        ],
    )


def with_capacity(scale_set: Resource, capacity: int) -> Resource:
    """Returns the scale set with a capacity that did not come from Pulumi."""
    sku: Properties = {**scale_set.inputs["sku"], "capacity": capacity}
    return replace(scale_set, inputs={**scale_set.inputs, "sku": sku})


def resized(scale_set: Resource, now: float, spot_machines: int | None) -> Resource:
    """Returns the scale set with the number of machines of its capacity, ready at once.

    The oldest are deleted first, as in Azure's scale-in policy:
    https://learn.microsoft.com/azure/virtual-machine-scale-sets/virtual-machine-scale-sets-scale-in-policy
    """
    wanted = int(scale_set.inputs["sku"]["capacity"])
    if scale_set.inputs["virtualMachineProfile"].get("priority") == "Spot":
        wanted = wanted if spot_machines is None else min(wanted, spot_machines)
    stay = [machine for machine in machines_of(scale_set, now) if machine.gone is None]
    if wanted >= len(stay):
        return with_more(scale_set, wanted - len(stay), now, now)
    oldest = {machine.name for machine in stay[: len(stay) - wanted]}
    return without(scale_set, oldest, now, now)
