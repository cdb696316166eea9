"""The interface by which a scenario declares and destroys the stack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

STACK = "rehearsal"

Operation = Literal["create", "update", "replace", "delete"]


@dataclass(frozen=True)
class Result:
    """How an `up` or a `destroy` ended."""

    error: str = ""
    """What its user reads; empty if all went well."""
    operations: frozenset[tuple[Operation, str]] = frozenset()
    """Operations and the types of their resources, ("update", "VirtualMachineScaleSet")."""
    outputs: dict[str, Any] = field(default_factory=dict)


class Driver(Protocol):
    name: str

    def up(self, config: Mapping[str, str]) -> Result: ...

    def destroy(self) -> Result: ...
