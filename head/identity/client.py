"""Asks the service that has the machine's identity; needs the standard library only."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterable
from typing import Any

from ..autoscaler.scale_set import VirtualMachine
from ..paths import SOCKET
from ..resource_manager import NO_ANSWER, Operation, ResourceManagerError

STARTS_S = 15.0
"""How long the service may take to start again."""
AZURE_S = 300.0
"""For an answer that needs Azure's, which is retried."""
SAVE_S = 30 * 60.0
"""Longer than the limits of the save itself, and of one that it waits for."""


class IdentityError(Exception):
    """The service does not answer, or does not do it; another try may succeed."""


def save() -> str:
    """Saves everything now; returns why something could not be saved, or "".

    Raises:
        IdentityError: The service does not answer.
    """
    done = ask("save", SAVE_S)
    return (done["last"] or f"exit code {done['code']}") if done["code"] else ""


class Workers:
    """The methods of head.identity.workers.Workers, for Ray's user.

    Each raises ResourceManagerError if Azure or the service refuses, or does not answer.
    """

    def machines(self) -> list[VirtualMachine]:
        return [VirtualMachine(**vm) for vm in _ask_azure("machines")]

    def grow(self, wanted: int, growing: bool) -> str:
        return str(_ask_azure("grow", wanted=wanted, growing=growing))

    def delete(self, names: Iterable[str]) -> str:
        return str(_ask_azure("delete", names=list(names)))

    def operation(self, url: str) -> Operation:
        return Operation(**_ask_azure("operation", url=url))


def _ask_azure(request: str, **values: Any) -> Any:
    try:
        return ask(request, AZURE_S, **values)
    except IdentityError as error:
        raise ResourceManagerError(NO_ANSWER, "", str(error)) from None


def ask(request: str, limit_s: float, **values: Any) -> Any:
    """Returns an answer of the service.

    Raises:
        ResourceManagerError: Azure has refused, or did not answer.
        IdentityError: The service has refused, or did not answer.
    """
    with connect(limit_s) as connection:
        send(connection, request, **values)
        with connection.makefile("rb") as lines:
            try:
                answer = json.loads(lines.readline())
            except (OSError, ValueError) as error:
                raise IdentityError(f"identity.service does not answer: {error}") from None
    if "refusal" in answer:
        raise ResourceManagerError(**answer["refusal"])
    if "error" in answer:
        raise IdentityError(f"identity.service: {answer['error']}")
    return answer["answer"]


def connect(limit_s: float) -> socket.socket:
    """Connects to the service, which may be starting.

    Raises:
        IdentityError: It does not run.
    """
    end = time.monotonic() + STARTS_S
    while True:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(str(SOCKET))
        except OSError as error:
            connection.close()
            if time.monotonic() > end:
                raise IdentityError(f"identity.service does not run: {error}") from None
            time.sleep(0.2)
        else:
            connection.settimeout(limit_s)
            return connection


def send(connection: socket.socket, request: str, **values: Any) -> None:
    try:
        connection.sendall(json.dumps({"request": request, **values}).encode() + b"\n")
    except OSError as error:
        raise IdentityError(f"identity.service does not answer: {error}") from None
