"""Which of a machine's TCP ports does the network let through from another machine?

Every port is sent a SYN. One that is answered has passed: by SYN-ACK where somebody listens, by
RST where nobody does. One without an answer was dropped on its way, which is all that an NSG does
with what it denies. No listener accepts anything: the sender's kernel, which knows nothing of these
connections, answers each SYN-ACK with RST by itself.

Connection tracking remembers next to nothing. A dropped SYN leaves no entry, an RST removes the
entry of its SYN at once, and a SYN-ACK's is in state CLOSE for 10 s, in which a SYN is new again.
Each probe has a source port of its own from the kernel, so that it meets no connection of the
machine and no entry of the probe before. (Where a SYN passes and the machine itself stays silent,
its entry is there for two minutes; under pressure the kernel evicts such entries first.)

UDP is not probed: Linux sends a peer one "port unreachable" a second (icmp_ratelimit).
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

from rehearsal.paths import ROOT
from rehearsal.shell import run


@dataclass(frozen=True)
class Reached:
    """The ports that answered."""

    listening: frozenset[int]
    refused: frozenset[int]
    """Let through, but nobody listens."""

    @property
    def passed(self) -> frozenset[int]:
        """All that the network lets through."""
        return self.listening | self.refused


def scan_from(namespace: Path | None, source: str, target: str) -> Reached:
    """Probes every port of `target` from the address `source`; takes 1 to 3 seconds.

    Args:
        namespace: File of the network namespace that has `source`; None for this process's.
        source: An IPv4 address.
        target: An IPv4 address of another machine.

    Raises:
        CommandError: Not root, `source` is not in that namespace, or `target` has no route.
    """
    said = run(
        *("nsenter", f"--net={namespace or '/proc/self/ns/net'}", f"--wd={ROOT}"),
        *(sys.executable, "-m", "rehearsal.network.port_scan", source, target),
    )
    answers = json.loads(said.stdout)
    return Reached(frozenset(answers["listening"]), frozenset(answers["refused"]))


PORTS = range(1, 65536)
MAX_ROUNDS = 5
QUIET_S = 0.1
"""A round is over when nothing has come for so long."""
BATCH = 256
"""Segments between two looks at the answers: below netdev_max_backlog, 1000 packets."""
RECEIVE_BUFFER = 64 << 20
"""Bytes: room for an answer from every port."""

SYN, RST, SYN_ACK = 0x02, 0x04, 0x12
TCP_HEADER = struct.Struct("!HHIIBBHHH")
SO_ATTACH_FILTER, SO_RCVBUFFORCE = 26, 33  # asm-generic/socket.h; Python has no names for them


def scan(source: str, target: str) -> Reached:
    """Probes from the network namespace of this process."""
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
        asking = Asking(raw, target, port, syn_segments(source, target, port, PORTS))
        asking.to_the_end()
    return Reached(frozenset(asking.listening), frozenset(asking.refused))


@dataclass
class Asking:
    """Who is asked, and who has answered so far."""

    raw: socket.socket
    target: str
    port: int
    segments: dict[int, bytes]
    listening: set[int] = field(default_factory=set)
    refused: set[int] = field(default_factory=set)

    def to_the_end(self) -> None:
        """Asks all, then who has not answered, until asking again brings nothing new."""
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
                try:
                    self.raw.sendto(self.segments[port], (self.target, 0))
                except PermissionError:  # dropped in this namespace's own output chain
                    continue
            self._read()
        heard = time.monotonic()
        while self._unanswered() and time.monotonic() < heard + QUIET_S:
            time.sleep(0.005)
            if self._read():
                heard = time.monotonic()

    def _read(self) -> bool:
        """Takes the answers that have come; says whether there were any."""
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
    """The SYN from `port` to each port of `to`, with its checksum (RFC 9293, 3.1)."""
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
    """Lets only what is sent to `port` into `raw`, not all the traffic of a busy machine.

    A classic BPF program on the IP packet (the kernel's networking/filter.rst).
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


def hurry() -> None:
    """Goes before all that is not real-time: on full CPUs a second of work would take many.

    Niceness doesn't do it: it counts only within a control group or a session (autogroup).
    """
    with suppress(PermissionError):  # a control group may have no real-time share; only slower
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))


if __name__ == "__main__":
    hurry()
    answered = scan(*sys.argv[1:])
    print(json.dumps({"listening": [*answered.listening], "refused": [*answered.refused]}))
