"""A stand-in for management.azure.com: checks access, causes faults, and routes requests.

https://learn.microsoft.com/azure/azure-resource-manager/management/request-limits-and-throttling
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from urllib.parse import parse_qs, urlsplit

from rehearsal.azure.azure_errors import RefusedError
from rehearsal.azure.http_server import Answer
from rehearsal.azure.management import autoscale_requests, scale_set_requests, vm_requests
from rehearsal.azure.management.management_faults import FaultsFile
from rehearsal.azure.management.request_context import COMPUTE, Request, RequestContext, forbidden
from rehearsal.azure.management.scale_set_changes import SetMachines
from rehearsal.azure.metadata.managed_identity import principal_of
from rehearsal.azure.resources.azure_stand_in import Azure

AUDIENCE = "https://management.azure.com"
GROUP = r"(?P<group>/subscriptions/[^/]+/resourceGroups/[^/]+)"
SET = rf"(?P<id>{GROUP}/providers/{COMPUTE}/virtualMachineScaleSets/[^/]+)"
VM = rf"(?P<id>{GROUP}/providers/{COMPUTE}/virtualMachines/(?P<name>[^/]+))"
AUTOSCALE = rf"(?P<id>{GROUP}/providers/Microsoft.Insights/autoscaleSettings/[^/]+)"
OPERATION = rf"/subscriptions/[^/]+/providers/{COMPUTE}/locations/[^/]+/operations/(?P<name>[^/]+)"

Route = Callable[[RequestContext, Request], Answer]
ROUTES: tuple[tuple[str, str, Route], ...] = (
    ("GET", SET, scale_set_requests.get_scale_set),
    ("PATCH", SET, scale_set_requests.patch_scale_set),
    ("POST", f"{SET}/delete", scale_set_requests.delete_machines),
    ("GET", f"{GROUP}/providers/{COMPUTE}/virtualMachines", scale_set_requests.list_machines),
    ("GET", VM, vm_requests.get_vm),
    ("POST", f"{VM}/(?P<verb>deallocate|start)", vm_requests.change_power),
    ("POST", f"{VM}/simulateEviction", vm_requests.evict),
    ("POST", f"{VM}/runCommand", vm_requests.run_command),
    ("PATCH", AUTOSCALE, autoscale_requests.patch_setting),
    ("GET", OPERATION, RequestContext.get_operation),
)


class Management:
    """Answers from Azure's state; methods may be called from several threads."""

    def __init__(self, azure: Azure, faults: FaultsFile, page: int = 50) -> None:
        """Limits a page of a list to `page` machines."""
        self._faults = faults
        self.machines = SetMachines(azure)
        self._context = RequestContext(azure, self.machines, page)
        self.asked: list[str] = []
        """Every request, "PATCH /subscriptions/..."."""

    def answer(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, base: str
    ) -> Answer | None:
        """Returns Azure's answer; None for an answer that is lost.

        Links in the answer start with `base`, "https://management.azure.com".
        """
        split = urlsplit(url)
        query = {key: values[0] for key, values in parse_qs(split.query).items()}
        self.asked.append(f"{method} {split.path}")
        try:
            route, parts = _route(method, split.path)
            principal = principal_of(headers.get("Authorization", ""), AUDIENCE)
            if "api-version" not in query:
                raise RefusedError(400, "MissingApiVersionParameter", "api-version is required.")
            content = json.loads(body) if body else {}
            if_match = headers.get("If-Match", "")
            with self._faults.changed() as faults:
                request = Request(
                    method, split.path, query, if_match, content, base, principal, parts, faults
                )
                return self._answer(route, request)
        except RefusedError as refusal:
            return refusal.answer

    def _answer(self, route: Route, request: Request) -> Answer | None:
        faults = request.faults
        if faults.happens("throttled"):
            wait = {"Retry-After": str(faults.retry_after_s)}
            raise RefusedError(429, "OperationNotAllowed", "The request was throttled.", wait)
        if faults.happens("forbidden"):
            raise forbidden(request.principal, "any action", request.path)
        answer = route(self._context, request)
        changes = request.method != "GET" and answer.status < 300
        return None if changes and faults.happens("lost_answers") else answer


def _route(method: str, path: str) -> tuple[Route, Mapping[str, str]]:
    for allowed, pattern, route in ROUTES:
        if method == allowed and (match := re.fullmatch(pattern, path)):
            return route, match.groupdict()
    raise RefusedError(404, "NotFound", f"The stand-in has no {method} {path}.")
