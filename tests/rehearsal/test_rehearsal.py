"""A short rehearsal: a head and one worker boot for real, train, and are gone without a trace."""

from __future__ import annotations

import os
from collections.abc import Iterator
from ipaddress import IPv4Network

import pytest

from rehearsal import paths
from rehearsal.__main__ import NETWORKS
from rehearsal.backend import Stage, open_stage
from rehearsal.clean import clean, host_state
from rehearsal.drivers.in_process import InProcess
from rehearsal.records import read_records
from rehearsal.rehearsal_lock import rehearsal_lock
from rehearsal.scenario.laptop import NodeWatch
from rehearsal.scenario.open_ports import ports_as_declared
from rehearsal.scenario.outcomes import Timeline
from rehearsal.scenario.scenario import Play
from rehearsal.set_up.host_checks import problems
from rehearsal.set_up.set_up import is_set_up


def why_not() -> str:
    """Returns what keeps a rehearsal from this machine; empty when it can."""
    if os.geteuid() != 0:
        return "a rehearsal needs root"
    found = problems([IPv4Network(network) for network in NETWORKS])
    if found:
        return "; ".join(found)
    return "" if is_set_up() else "`make rehearse-set-up` has not been run"


REASON = why_not()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.rehearsal,
    pytest.mark.skipif(bool(REASON), reason=REASON),
    pytest.mark.timeout(600),
]


@pytest.fixture(scope="module")
def play() -> Iterator[Play]:
    """A cluster that is up; what is left of this machine afterwards is what was there before."""
    with rehearsal_lock():
        clean()
        before = host_state()
        try:
            open_stage()
            play = Play(InProcess(Stage(), paths.RUN / "pulumi.json"), Timeline())
            result = play.up(minWorkers="1", maxWorkers="1")
            assert not result.error
            play.outputs = result.outputs
            yield play
        finally:
            clean()
        assert host_state() == before


def test_every_machine_is_a_node_of_ray(play: Play) -> None:
    with NodeWatch(play.head) as nodes:
        nodes.wait_for({"head", "worker0"}, timeout_s=60)


def test_exactly_the_declared_ports_are_open(play: Play) -> None:
    assert play.outputs  # The stack is up.
    assert ports_as_declared().endswith("all as declared")


def test_the_training_goes_on(play: Play) -> None:
    assert play.training.goes_on(timeout_s=60) > 0


def test_destroy_leaves_nothing_but_the_results(play: Play) -> None:
    assert not play.driver.destroy().error
    kinds = sorted(record.kind for record in read_records().values())
    assert kinds == ["BlobContainer", "ResourceGroup", "StorageAccount"]
