"""Unnamed network namespaces: the kernel removes each as soon as no process has it open."""

from __future__ import annotations

import ctypes
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from rehearsal.host_shell import run

CLONE_NEWNET = 0x40000000
OWN = "/proc/thread-self/ns/net"
BRIDGED = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class NetworkNamespace:
    """A separate network, held open by a file descriptor."""

    file: int

    @property
    def path(self) -> str:
        """The path for `ip link set DEVICE netns`, valid while this process lives."""
        return f"/proc/{os.getpid()}/fd/{self.file}"

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Moves this thread and the commands it starts into the namespace; sockets stay there."""
        before = os.open(OWN, os.O_RDONLY)
        _call("setns", self.file, CLONE_NEWNET)
        try:
            yield
        finally:
            _call("setns", before, CLONE_NEWNET)
            os.close(before)


@contextmanager
def network_namespace() -> Iterator[NetworkNamespace]:
    """Makes a namespace that contains only a loopback interface, which is down.

    Raises:
        OSError: The process is not root or lacks capabilities.
    """
    before = os.open(OWN, os.O_RDONLY)
    try:
        _call("unshare", CLONE_NEWNET)
        made = NetworkNamespace(os.open(OWN, os.O_RDONLY))
        _call("setns", before, CLONE_NEWNET)
    finally:
        os.close(before)
    try:
        yield made
    finally:
        os.close(made.file)


def ip(*commands: str) -> None:
    """Runs commands of `ip` in this thread's namespace.

    Raises:
        CommandError: A command failed.
    """
    run("ip", "-batch", "-", text="\n".join(commands))


def needs(*tools: str, bridges: bool = False) -> list[pytest.MarkDecorator]:
    """Marks tests that need network namespaces, these tools and rules on bridges."""
    lacks = missing(*tools)
    if bridges and not BRIDGED.exists():
        lacks = lacks or "the kernel module br_netfilter is not loaded"
    return [
        pytest.mark.slow,
        pytest.mark.rehearsal,
        pytest.mark.skipif(bool(lacks), reason=lacks),
    ]


def missing(*tools: str) -> str:
    """Returns what this machine lacks for network namespaces with these tools, or ""."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for tool in ("ip", *tools):
        if not shutil.which(tool):
            return f"{tool} is not installed"
    try:
        with network_namespace():
            return ""
    except OSError as error:
        return f"network namespaces cannot be made here: {error}"


def _call(function: str, *arguments: int) -> None:
    if getattr(_libc, function)(*arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{function}: {os.strerror(code)}")
