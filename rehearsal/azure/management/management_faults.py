"""Faults of Azure's management endpoint, which tests and acts switch on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rehearsal import shared_file


@dataclass
class Faults:
    """No fault is on by default. A number counts down whenever its fault happens."""

    machines: int | None = None
    """How many machines a scale set can have; None: any number."""
    sold_out_code: str = "AllocationFailed"
    """The error beyond that. SkuNotAvailable comes at once, others when the operation ends."""
    sold_out_sizes: tuple[str, ...] = ()
    """Sizes without capacity: a scale set with several sizes uses its next one."""
    capacity_is_goal: bool = False
    """Whether the capacity is a number of machines that Azure keeps, deletions by name included. By
    default a new capacity creates or deletes its difference to the old one, however many machines
    exist, and a deletion by name leaves it: https://github.com/dataplat/dbatools/issues/10540"""
    keeps_capacity: bool = False
    """Whether a failed allocation and an eviction keep the capacity."""
    leaves_failed: bool = False
    provisioning_fails: int = 0
    """New machines whose provisioning fails although there is room."""
    never_join: int = 0
    starts_sold_out: int = 0
    """Starts of a VM that fail for lack of room, with sold_out_code."""
    throttled: int = 0
    """Requests answered with 429."""
    retry_after_s: int = 1
    forbidden: int = 0
    """Requests answered with 403, as if a role had not propagated yet."""
    lists_fail: int = 0
    """Lists of machines, or pages of a list, answered with 500."""
    whole_pages: int = 0
    """Pages sent before a list fails."""
    lost_answers: int = 0
    """Changes that Azure makes but whose answer does not arrive."""
    changed_between: int = 0
    """Changes of a scale set answered with 412: somebody else changed it first."""
    deallocations_refused: int = 0
    """Deallocations answered with 409."""

    def happens(self, name: str) -> bool:
        """Counts a fault down; returns whether it happens."""
        left: int = getattr(self, name)
        setattr(self, name, max(0, left - 1))
        return left > 0


@dataclass(frozen=True)
class FaultsFile:
    path: Path

    def read(self) -> Faults:
        return shared_file.read(self.path, Faults)

    @contextmanager
    def changed(self) -> Iterator[Faults]:
        """Yields the faults, and writes them back even after an exception."""
        with shared_file.locked(self.path):
            faults = self.read()
            try:
                yield faults
            finally:
                shared_file.write(self.path, faults)
