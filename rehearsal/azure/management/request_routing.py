"""A stand-in for management.azure.com: who may ask it, what goes wrong, and which request it is.

https://learn.microsoft.com/azure/azure-resource-manager/management/request-limits-and-throttling
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from urllib.parse import parse_qs, urlsplit

from rehearsal.azure.management.management_faults import Faults, FaultsFile
from rehearsal.azure.management.response_bodies import Answer, RefusedError
from rehearsal.azure.management.scale_set_changes import SetMachines
from rehearsal.azure.management.scale_set_requests import COMPUTE, Request, Requests, forbidden
from rehearsal.azure.metadata.managed_identity import claims
from rehearsal.azure.resources.azure_stand_in import Azure

AUDIENCE = "https://management.azure.com"
GROUP = r"(?P<group>/subscriptions/[^/]+/resourceGroups/[^/]+)"
SET = rf"(?P<id>{GROUP}/providers/{COMPUTE}/virtualMachineScaleSets/[^/]+)"
VM = rf"(?P<id>{GROUP}/providers/{COMPUTE}/virtualMachines/(?P<name>[^/]+))"
OPERATION = rf"/subscriptions/[^/]+/providers/{COMPUTE}/locations/[^/]+/operations/(?P<name>[^/]+)"

Route = Callable[[Requests, Request, Faults], Answer]
ROUTES: tuple[tuple[str, str, Route], ...] = (
    ("GET", SET, Requests.get_scale_set),
    ("PATCH", SET, Requests.resize),
    ("POST", f"{SET}/delete", Requests.delete_machines),
    ("GET", f"{GROUP}/providers/{COMPUTE}/virtualMachines", Requests.list_machines),
    ("GET", VM, Requests.get_machine),
    ("POST", f"{VM}/(?P<verb>deallocate|start)", Requests.change_power),
    ("POST", f"{VM}/simulateEviction", Requests.evict),
    ("POST", f"{VM}/runCommand", Requests.run_command),
    ("GET", OPERATION, Requests.get_operation),
)


class Management:
    """Answers from Azure's state; methods may be called from several threads."""

    def __init__(
        self,
        azure: Azure,
        faults: FaultsFile,
        machines: SetMachines | None = None,
        page: int = 50,
    ) -> None:
        """Makes one.

        Args:
            page: Machines on one page of a list.
        """
        self._faults = faults
        self._requests = Requests(azure, machines or SetMachines(azure), page)
        self.asked: list[str] = []
        """Every request, "PATCH /subscriptions/..."."""

    def answer(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, base: str
    ) -> Answer | None:
        """Returns what Azure would answer; None for an answer that is lost.

        Args:
            base: Where the answer's links lead, "https://management.azure.com".
        """
        parts = urlsplit(url)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        self.asked.append(f"{method} {parts.path}")
        try:
            route, found = _route(method, parts.path)
            principal = _principal(headers.get("Authorization", ""))
            if "api-version" not in query:
                raise RefusedError(400, "MissingApiVersionParameter", "api-version is required.")
            content = json.loads(body) if body else {}
            if_match = headers.get("If-Match", "")
            request = Request(method, parts.path, query, if_match, content, base, principal, found)
            with self._faults.changed() as faults:
                return self._answer(route, request, faults)
        except RefusedError as refusal:
            return refusal.answer

    def _answer(self, route: Route, request: Request, faults: Faults) -> Answer | None:
        if faults.happens("throttled"):
            wait = {"Retry-After": str(faults.retry_after_s)}
            raise RefusedError(429, "OperationNotAllowed", "The request was throttled.", wait)
        if faults.happens("forbidden"):
            raise forbidden(request.principal, "any action", request.path)
        answer = route(self._requests, request, faults)
        lost = request.method != "GET" and answer.status < 300 and faults.happens("lost_answers")
        return None if lost else answer


def _route(method: str, path: str) -> tuple[Route, Mapping[str, str]]:
    for allowed, pattern, route in ROUTES:
        if method == allowed and (found := re.fullmatch(pattern, path)):
            return route, found.groupdict()
    raise RefusedError(404, "NotFound", f"The stand-in has no {method} {path}.")


def _principal(authorization: str) -> str:
    known = claims(authorization)
    if str(known.get("aud", "")).rstrip("/") != AUDIENCE or known.get("exp", 0) < time.time():
        raise RefusedError(401, "InvalidAuthenticationToken", "The access token is invalid.")
    return str(known["oid"])
