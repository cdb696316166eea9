"""Removes everything that a rehearsal has left, also after a crash, and shows that it is gone."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress

import psutil

from rehearsal.azure.management import management_service
from rehearsal.azure.metadata import metadata_service
from rehearsal.backend import storage_accounts
from rehearsal.host_paths import MACHINES, MANAGEMENT, METADATA, RUN
from rehearsal.host_shell import run
from rehearsal.machines import cgroup
from rehearsal.machines.nspawn_machine import Machine
from rehearsal.network import bridges

PROVIDER = "rehearsal.backend"
"""The module that Pulumi's engine runs as azure-native's provider."""


def clean() -> None:
    """Ends the processes, unmounts and removes the files of a rehearsal."""
    end_providers()
    # The service makes machines as well.
    management_service.stop(MANAGEMENT)
    names = cgroup.all_names()
    if MACHINES.is_dir():
        names |= {folder.name for folder in MACHINES.iterdir()}
    for name in sorted(names):
        Machine(name).delete()
    if RUN.is_dir():
        metadata_service.stop(METADATA)
        storage_accounts().stop()
    bridges.close_network()
    for mount in sorted(_mounts(), key=len, reverse=True):
        run("umount", "-l", mount, check=False)
    cgroup.remove_all()
    shutil.rmtree(RUN, ignore_errors=True)


def end_providers(module: str = PROVIDER) -> None:
    """Ends providers whose engine was killed: they would wait for it."""
    for process in _running(module):
        with suppress(psutil.NoSuchProcess):
            process.kill()
            process.wait(timeout=10)


def host_state() -> frozenset[str]:
    """Returns a line for each thing that a rehearsal may change on this machine."""
    links = json.loads(run("ip", "-json", "link", "show").stdout)
    spaces = json.loads(run("ip", "-json", "netns", "list").stdout or "[]")
    tables = json.loads(run("nft", "--json", "list", "tables").stdout)["nftables"]
    lines = [f"interface {link['ifname']}" for link in links]
    lines += [f"network namespace {space['name']}" for space in spaces]
    lines += [f"nftables table {t['table']['name']}" for t in tables if "table" in t]
    lines += [f"mount {mount}" for mount in _mounts()]
    lines += [f"cgroup {name}" for name in cgroup.all_names()]
    lines += [f"{key} = {bridges.setting(key)}" for key in bridges.SETTINGS]
    lines += [f"process {process.pid} {PROVIDER}" for process in _running(PROVIDER)]
    lines += [f"process {process.pid} of {RUN}" for process in _processes(f"{RUN}/")]
    if RUN.exists():
        lines.append(f"folder {RUN}")
    return frozenset(lines)


def _running(module: str) -> list[psutil.Process]:
    return [process for process in _processes(module) if module in process.info["cmdline"]]


def _processes(text: str) -> list[psutil.Process]:
    """Returns the processes with this text in their command."""
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if text in " ".join(process.info["cmdline"] or [])
    ]


def _mounts() -> list[str]:
    """Returns the mount points of a running rehearsal."""
    points = [partition.mountpoint for partition in psutil.disk_partitions(all=True)]
    return [point for point in points if point.startswith(f"{RUN}/")]
