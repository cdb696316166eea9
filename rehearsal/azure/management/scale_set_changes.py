"""Changes that Azure makes to a scale set and its machines: resize, deletion, eviction, power.

Switches in the faults decide what Azure's documents leave open: whether the capacity is a count of
requested machines or a goal, and what an eviction and a failed allocation do to it.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Collection
from dataclasses import dataclass, replace

from rehearsal.azure.azure_errors import ArmError, RefusedError, not_found, refused
from rehearsal.azure.management.management_faults import Faults
from rehearsal.azure.resources import resource_skus
from rehearsal.azure.resources.azure_stand_in import Azure
from rehearsal.azure.resources.refusals import TIME_FACTOR
from rehearsal.azure.resources.resource_kinds import Resource, Resources
from rehearsal.azure.resources.scale_set_machines import (
    machines_of,
    with_capacity,
    with_machines,
    with_more,
    without,
)
from rehearsal.azure.resources.virtual_machines import exceeded_quota

OPERATION_S = 90 / TIME_FACTOR
"""How long Azure takes to provision or delete a machine."""
EVICTION_S = 30 / TIME_FACTOR
SAID_AT_ONCE = "SkuNotAvailable"
FAILED = "OSProvisioningTimedOut"
SOLD_OUT = "Allocation failed. We do not have sufficient capacity for the requested VM size."


@dataclass
class SetMachines:
    """Changes scale sets in Azure's state; each method is one request."""

    azure: Azure
    operation_s: float = OPERATION_S

    def resize(
        self, set_id: str, capacity: int, if_match: str, faults: Faults
    ) -> tuple[Resource, ArmError | None]:
        """Sets the capacity; returns the scale set and the error that the operation will end in.

        Nothing has changed after a RefusedError.
        """
        now = time.time()
        with self.azure.changing() as state:
            before = scale_set_of(state.resources, set_id)
            changed = if_match not in {"", etag(before)}
            if changed or faults.happens("changed_between"):
                raise RefusedError(412, "PreconditionFailed", "The scale set has been modified.")
            wanted = with_capacity(before, capacity)
            if restricted := resource_skus.refusal(
                wanted, before, self.azure.subscription.restricted
            ):
                raise refused(restricted)
            after, error = self._grown(wanted, before, faults, now)
            if not_enough := exceeded_quota(
                state.resources, {**state.resources, set_id: after}, self.azure.quota
            ):
                raise refused(not_enough)
            state.resources[set_id] = after
        return after, error

    def delete(self, set_id: str, names: Collection[str], faults: Faults) -> None:
        """Deletes machines by name.

        Nothing has changed after a RefusedError: one of them does not belong to the scale set.
        """
        now = time.time()
        with self.azure.changing() as state:
            scale_set = scale_set_of(state.resources, set_id)
            existing = {machine.name for machine in machines_of(scale_set, now)}
            if unknown := sorted(set(names) - existing):
                what = f"The provided instanceId {unknown[0]} is not an active VM of the scale set."
                raise RefusedError(400, "InvalidParameter", what)
            gone = now + self.operation_s
            delete = _less if faults.capacity_is_goal else without
            state.resources[set_id] = delete(scale_set, names, now, gone)

    def evict(self, set_id: str, name: str, faults: Faults) -> None:
        """Takes a Spot machine away, as POST .../simulateEviction does."""
        now = time.time()
        with self.azure.changing() as state:
            before = scale_set_of(state.resources, set_id)
            after = _less(before, [name], now, now + EVICTION_S)
            if faults.keeps_capacity:
                after = with_capacity(after, int(before.inputs["sku"]["capacity"]))
            state.resources[set_id] = after

    def set_power(self, set_id: str, name: str, deallocated: bool) -> None:
        with self.azure.changing() as state:
            scale_set = scale_set_of(state.resources, set_id)
            machines = {machine.name: machine for machine in machines_of(scale_set, time.time())}
            if name in machines:
                machines[name] = replace(machines[name], deallocated=deallocated)
            state.resources[set_id] = with_machines(scale_set, machines.values())

    def _grown(
        self, wanted: Resource, before: Resource, faults: Faults, now: float
    ) -> tuple[Resource, ArmError | None]:
        """Returns the scale set with the machines for its new capacity, and the error if any."""
        stay = [machine for machine in machines_of(before, now) if machine.gone is None]
        capacity = int(wanted.inputs["sku"]["capacity"])
        counted = len(stay) if faults.capacity_is_goal else int(before.inputs["sku"]["capacity"])
        more, ready = capacity - counted, now + self.operation_s
        if more < 0:
            oldest = {machine.name for machine in stay[:-more]}
            return without(wanted, oldest, now, ready), None
        sizes = resource_skus.sizes_of(wanted.inputs)
        size = next((size for size in sizes if size not in faults.sold_out_sizes), "")
        room = more if faults.machines is None else max(0, faults.machines - len(stay))
        room = room if size else 0
        made = min(more, room)
        error = ArmError(faults.sold_out_code, SOLD_OUT) if made < more else None
        if error and error.code == SAID_AT_ONCE:
            raise refused(error)
        failing = sum(faults.happens("provisioning_fails") for _ in range(made))
        errors = [FAILED] * failing
        if error and faults.leaves_failed:
            errors.append(error.code)
        silent = sum(faults.happens("never_join") for _ in range(made - failing))
        grown = with_more(wanted, made - failing, now, ready, errors, silent, size)
        if error and not faults.keeps_capacity:
            grown = with_capacity(grown, len(stay) + made - failing + len(errors))
        return grown, error or (ArmError(FAILED, "A VM was not provisioned.") if failing else None)


def scale_set_of(resources: Resources, set_id: str) -> Resource:
    """Returns a scale set; refuses the request if no scale set has this id."""
    scale_set = resources.get(set_id)
    if scale_set is None or scale_set.kind != "VirtualMachineScaleSet":
        raise refused(not_found(set_id))
    return scale_set


def _less(scale_set: Resource, names: Collection[str], now: float, gone: float) -> Resource:
    stay = {machine.name for machine in machines_of(scale_set, now) if machine.gone is None}
    capacity = max(0, int(scale_set.inputs["sku"]["capacity"]) - len(stay & set(names)))
    return with_capacity(without(scale_set, names, now, gone), capacity)


def etag(scale_set: Resource) -> str:
    """Returns a text that changes whenever the scale set does."""
    content = json.dumps([scale_set.inputs["sku"], scale_set.instance_view], sort_keys=True)
    return f'"{hashlib.sha256(content.encode()).hexdigest()[:16]}"'
