"""Faults of a whole machine, its network or its disk."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from random import Random

from rehearsal.azure.metadata import metadata_state
from rehearsal.azure.resources.resource_kinds import all_of
from rehearsal.backend import Backend
from rehearsal.host_paths import METADATA
from rehearsal.host_shell import run
from rehearsal.machines.disk import DISK, LOOP_DEVICES
from rehearsal.machines.nspawn_machine import Machine, all_machines
from rehearsal.scenario import head_commands, machine_faults
from rehearsal.scenario.limited_network import WORKER_MBIT_PER_S, limited
from rehearsal.scenario.outcomes import UnexpectedError
from rehearsal.scenario.training_watch import until
from rehearsal.soak.faults import Cluster, Fault

OFF_S = 10.0
CUT_S = 20.0
DISTURBED_S = 60.0
WRITTEN_BYTES = 64 * 2**20
"""ext4 needs some blocks for the list of what is reserved."""
NOTICE_S = machine_faults.NOTICE_S
TABLE = "volley-soak"


def machine_faults_of_soak() -> list[Fault]:
    return [
        Fault("worker loses power", "workers", worker_loses_power),
        Fault("worker evicted", "workers", partial(worker_evicted, True)),
        Fault("worker evicted without notice", "workers", partial(worker_evicted, False)),
        Fault("head loses power", "head", head_loses_power),
        Fault("head evicted", "head", partial(head_evicted, True)),
        Fault("head evicted without notice", "head", partial(head_evicted, False)),
        Fault("network cut", "network", network_cut),
        Fault("packets lost", "network", packets_lost),
        Fault("slow network", "network", slow_network),
        Fault("no DNS", "network", no_dns),
        Fault("disk full", "disk", disk_full),
        Fault("clock an hour ahead", "clock", partial(clock_steps, "+3600")),
        Fault("clock an hour behind", "clock", partial(clock_steps, "-3600")),
    ]


def worker_loses_power(cluster: Cluster) -> str:
    victim = _worker(cluster.random)
    victim.kill()
    time.sleep(OFF_S)
    if victim.power == "on":
        victim.start()
    return victim.name


def worker_evicted(notice: bool, cluster: Cluster) -> str:
    victim = _worker(cluster.random)
    if notice:
        machine_faults.evict(victim)
    else:
        machine_faults.take_away(victim)
    return victim.name


def head_loses_power(cluster: Cluster) -> str:
    cluster.context.head.kill()
    time.sleep(OFF_S)
    cluster.context.head.start()
    _wait_for_boot(cluster)
    return f"off for {OFF_S:.0f} s"


def head_evicted(notice: bool, cluster: Cluster) -> str:
    """Deallocates the head, as Azure does with a Spot VM; then somebody starts it again."""
    backend = Backend()
    (head_id,) = all_of(backend.resources(), "VirtualMachine")
    if notice:
        event = metadata_state.ScheduledEvent("Preempt", ("head",), time.time() + NOTICE_S)
        metadata_state.schedule(METADATA, event)
        answered = partial(metadata_state.acknowledged, METADATA, event.event_id)
        until(lambda: answered() or time.time() > event.not_before, NOTICE_S + 5, "the notice ends")
    else:
        cluster.context.head.kill()
    backend.deallocate(head_id)
    until(lambda: cluster.context.head.power == "off", 60, "the head is off")
    time.sleep(cluster.random.uniform(OFF_S, 6 * OFF_S))
    cluster.volley.type("start")
    _wait_for_boot(cluster)
    return "started again by volley start"


def network_cut(cluster: Cluster) -> str:
    victim = _any(cluster.random)
    run("ip", "link", "set", victim.interface, "down")
    try:
        time.sleep(CUT_S)
    finally:
        run("ip", "link", "set", victim.interface, "up", check=False)
    return f"{victim.name} for {CUT_S:.0f} s"


def packets_lost(cluster: Cluster) -> str:
    victim = _any(cluster.random)
    lost = "numgen random mod 100 < 10 drop"
    rules = {"input": f"iifname host0 {lost}", "output": f"oifname host0 {lost}"}
    with network_rules(victim, rules):
        time.sleep(DISTURBED_S)
    return f"a tenth of {victim.name}'s for {DISTURBED_S:.0f} s"


def slow_network(cluster: Cluster) -> str:
    victim = _any(cluster.random)
    with limited(victim, WORKER_MBIT_PER_S / 10):
        time.sleep(DISTURBED_S)
    return f"{victim.name} has a tenth for {DISTURBED_S:.0f} s"


def no_dns(cluster: Cluster) -> str:
    victim = _any(cluster.random)
    with network_rules(victim, {"output": "meta l4proto { tcp, udp } th dport 53 drop"}):
        time.sleep(DISTURBED_S)
    return f"{victim.name} for {DISTURBED_S:.0f} s"


def disk_full(cluster: Cluster) -> str:
    """Fills a machine's disk: almost all of the space is reserved and not written."""
    if not LOOP_DEVICES.exists():
        raise UnexpectedError("this host has no loop devices")
    victim = _any(cluster.random)
    reserved, written = (victim.folder / DISK / name for name in ("reserved", "written"))
    try:
        free = os.statvfs(reserved.parent)
        size = free.f_bavail * free.f_frsize - WRITTEN_BYTES
        run("fallocate", "-l", str(size), reserved)
        run("dd", "if=/dev/zero", f"of={written}", "bs=1M", check=False)
        time.sleep(DISTURBED_S)
    finally:
        reserved.unlink(missing_ok=True)
        written.unlink(missing_ok=True)
    return f"{victim.name} for {DISTURBED_S:.0f} s"


def clock_steps(offset_s: str, cluster: Cluster) -> str:
    """Steps the clock of volley's services on the head, which shares the kernel's clock."""
    head = cluster.context.head
    with head_commands.own_clock(head, offset_s):
        time.sleep(3 * DISTURBED_S)
    return f"by {offset_s} s for {3 * DISTURBED_S:.0f} s"


@contextmanager
def network_rules(machine: Machine, rules: dict[str, str], redirect: str = "") -> Iterator[None]:
    """Adds rules to a machine's own firewall, one for each hook, and one that redirects."""
    chains = [
        f"chain {hook} {{ type filter hook {hook} priority filter; {rule}; }}"
        for hook, rule in rules.items()
    ]
    if redirect:
        chains.append(f"chain flows {{ type nat hook output priority -100; {redirect}; }}")
    text = "\n".join([f"table ip {TABLE} {{", *chains, "}"])
    inside = ["nsenter", "-t", str(machine.leader), "-n", "nft"]
    run(*inside, "-f", "-", text=text)
    try:
        yield
    finally:
        run(*inside, "delete", "table", "ip", TABLE, check=False)


def _wait_for_boot(cluster: Cluster) -> None:
    until(cluster.context.head.cloud_init_done, 180, "the head is up again")


def _worker(random: Random) -> Machine:
    workers = [machine for machine in all_machines() if machine.name != "head"]
    if not workers:
        raise UnexpectedError("no worker exists")
    return random.choice(workers)


def _any(random: Random) -> Machine:
    running = [machine for machine in all_machines() if machine.leader is not None]
    if not running:
        raise UnexpectedError("no machine runs")
    return random.choice(running)
