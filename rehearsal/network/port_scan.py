"""Finds the TCP ports of a machine that the network lets through from another machine.

A SYN is sent to every port. An answer means that it has passed: SYN-ACK from a listener, RST where
there is none. No answer means that it was dropped, which is all that an NSG does with what it
denies. No listener accepts anything: the sender's kernel does not know these connections and
answers each SYN-ACK with RST by itself.

Connection tracking keeps almost nothing. A dropped SYN leaves no entry, RST removes the entry of
its SYN at once, and after a SYN-ACK the entry is in state CLOSE for 10 s, in which a SYN is new
again. Each scan has a source port of its own from the kernel, so that it meets no connection of the
machine and no entry of another scan.

UDP is not scanned: Linux sends a peer one "port unreachable" a second (icmp_ratelimit).
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import struct
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from rehearsal.host_paths import ROOT
from rehearsal.host_shell import run


@dataclass(frozen=True)
class Reached:
    """The ports that answered."""

    listening: frozenset[int]
    refused: frozenset[int]
    """Let through, but without a listener."""

    @property
    def passed(self) -> frozenset[int]:
        """All that the network lets through."""
        return self.listening | self.refused


def scan_from(namespace: Path | None, source: str, target: str) -> Reached:
    """Scans every port of `target` from the address `source`; takes 1 to 3 seconds.

    `namespace` is the file of the network namespace that has `source`; None is this process's.
    Raises CommandError without root, or if `target` has no route.
    """
    enter = ["nsenter", f"--net={namespace or '/proc/self/ns/net'}", f"--wd={ROOT}"]
    scan_command = [sys.executable, "-m", "rehearsal.network.port_scan", source, target]
    answers = json.loads(run(*enter, *scan_command).stdout)
    return Reached(frozenset(answers["listening"]), frozenset(answers["refused"]))


PORTS = range(1, 65536)
MAX_ROUNDS = 5
QUIET_S = 0.1
"""A round ends when no answer has arrived for this long."""
BATCH = 256
"""Segments sent between two reads of the answers: below netdev_max_backlog, 1000 packets."""
RECEIVE_BUFFER = 64 << 20
"""Bytes: room for an answer from every port."""

SYN, RST, SYN_ACK = 0x02, 0x04, 0x12
TCP_HEADER = struct.Struct("!HHIIBBHHH")
SO_ATTACH_FILTER, SO_RCVBUFFORCE = 26, 33  # asm-generic/socket.h; Python has no names for them


def scan(source: str, target: str) -> Reached:
    """Scans from the network namespace of this process."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_STREAM) as reserved,
        socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP) as raw,
    ):
        reserved.bind((source, 0))
        port = reserved.getsockname()[1]
        receive_only(raw, port)
        raw.bind((source, 0))
        raw.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BUFFER)
        raw.setblocking(False)
        running = Scan(raw, target, port, syn_segments(source, target, port, PORTS))
        running.to_the_end()
    return Reached(frozenset(running.listening), frozenset(running.refused))


@dataclass
class Scan:
    """A scan: the ports to ask, and those that have answered so far."""

    raw: socket.socket
    target: str
    port: int
    segments: dict[int, bytes]
    listening: set[int] = field(default_factory=set)
    refused: set[int] = field(default_factory=set)

    def to_the_end(self) -> None:
        """Asks every port, then those without an answer, until none is new."""
        for number in range(MAX_ROUNDS):
            unanswered = self._unanswered()
            self._ask(sorted(unanswered))
            if number > 0 and self._unanswered() == unanswered:
                return

    def _unanswered(self) -> set[int]:
        return self.segments.keys() - self.listening - self.refused

    def _ask(self, ports: list[int]) -> None:
        for first in range(0, len(ports), BATCH):
            for port in ports[first : first + BATCH]:
                # It may be dropped in this namespace's own output chain.
                with suppress(PermissionError):
                    self.raw.sendto(self.segments[port], (self.target, 0))
            self._read()
        heard = time.monotonic()
        while self._unanswered() and time.monotonic() < heard + QUIET_S:
            time.sleep(0.005)
            if self._read():
                heard = time.monotonic()

    def _read(self) -> bool:
        """Reads the answers that have arrived; returns whether there were any."""
        count = 0
        while True:
            try:
                packet = self.raw.recv(128)
            except BlockingIOError:
                return count > 0
            tcp = (packet[0] & 0x0F) * 4
            port, to = struct.unpack_from("!HH", packet, tcp)
            if to != self.port:  # came before the filter was there
                continue
            count += 1
            if packet[tcp + 13] & RST:
                self.refused.add(port)
            elif packet[tcp + 13] & SYN_ACK == SYN_ACK:
                self.listening.add(port)


def syn_segments(source: str, target: str, port: int, to: Iterable[int]) -> dict[int, bytes]:
    """Returns the SYN from `port` to each port of `to`, with its checksum (RFC 9293, 3.1)."""
    after_ports = (0, 0, (TCP_HEADER.size // 4) << 4, SYN, 1024)
    words = socket.inet_aton(source) + socket.inet_aton(target)
    words += struct.pack("!HH", socket.IPPROTO_TCP, TCP_HEADER.size)
    words += TCP_HEADER.pack(port, 0, *after_ports, 0, 0)
    common = sum(struct.unpack(f"!{len(words) // 2}H", words))

    def segment(destination: int) -> bytes:
        total = common + destination
        while total >> 16:
            total = (total & 0xFFFF) + (total >> 16)
        return TCP_HEADER.pack(port, destination, *after_ports, ~total & 0xFFFF, 0)

    return {destination: segment(destination) for destination in to}


def receive_only(raw: socket.socket, port: int) -> None:
    """Lets `raw` receive only packets to `port`, not all the traffic of a busy machine.

    It attaches a classic BPF program on the IP packet (the kernel's networking/filter.rst).
    """
    program = ctypes.create_string_buffer(
        struct.pack("=HBBI", 0xB1, 0, 0, 0)  # x = length of the IP header
        + struct.pack("=HBBI", 0x48, 0, 0, 2)  # a = 16 bits at x + 2, the destination port
        + struct.pack("=HBBI", 0x15, 0, 1, port)  # is it `port`?
        + struct.pack("=HBBI", 0x06, 0, 0, 0xFFFF)  # yes: all of it
        + struct.pack("=HBBI", 0x06, 0, 0, 0)  # no: nothing
    )
    raw.setsockopt(
        socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("@HP", 5, ctypes.addressof(program))
    )


if __name__ == "__main__":
    # On busy CPUs a second of work would take many. Niceness is not enough: it counts only within a
    # control group or a session (autogroup). A control group may have no real-time share.
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    answered = scan(*sys.argv[1:])
    print(json.dumps({"listening": [*answered.listening], "refused": [*answered.refused]}))
