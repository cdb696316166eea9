"""A short rehearsal: a head and one worker really boot, train, and leave no trace."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from ipaddress import IPv4Network

import pytest

from rehearsal import addresses
from rehearsal.backend import Backend, open_backend
from rehearsal.clean import clean, host_state
from rehearsal.drivers.in_process import InProcess
from rehearsal.scenario.context import IMAGE_WITH_ENVIRONMENT, Context
from rehearsal.scenario.read_only_acts import ports_as_declared
from rehearsal.scenario.stack_changes import KEPT
from rehearsal.scenario.training_watch import NodeWatch
from rehearsal.set_up import is_set_up
from rehearsal.set_up.host_checks import problems
from rehearsal.shared_file import RehearsalRunningError, rehearsal_lock


def why_not() -> str:
    """Returns the reason why this machine cannot run a rehearsal, or ""."""
    if os.geteuid() != 0:
        return "a rehearsal needs root"
    reasons = problems([IPv4Network(network) for network in addresses.ALL])
    if reasons:
        return "; ".join(reasons)
    return "" if is_set_up() else "`make rehearse-set-up` has not been run"


REASON = why_not()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.rehearsal,
    pytest.mark.skipif(bool(REASON), reason=REASON),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Context]:
    """A running cluster; afterwards this machine must be in the same state as before."""
    with ExitStack() as lock:
        try:
            lock.enter_context(rehearsal_lock())
        except RehearsalRunningError as error:
            pytest.skip(str(error))
        clean()
        before = host_state()
        try:
            open_backend()
            context = Context(InProcess(Backend()))
            sizes = {"image": IMAGE_WITH_ENVIRONMENT, "minWorkers": "1", "maxWorkers": "1"}
            assert not context.up(**sizes).error
            yield context
        finally:
            clean()
        assert host_state() == before


def test_every_machine_is_a_node_of_ray(cluster: Context) -> None:
    with NodeWatch(cluster.head) as nodes:
        nodes.wait_for({"head", "worker0"}, timeout_s=60)


def test_exactly_the_declared_ports_are_open(cluster: Context) -> None:
    assert cluster.outputs  # The stack is up.
    assert ports_as_declared().endswith("all as declared")


def test_the_training_continues(cluster: Context) -> None:
    assert cluster.training.continues(timeout_s=60) > 0


def test_destroy_leaves_nothing_but_the_results(cluster: Context) -> None:
    assert not cluster.driver.destroy().error
    assert sorted(resource.kind for resource in Backend().resources().values()) == KEPT
