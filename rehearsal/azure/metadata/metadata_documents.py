"""Documents and refusals of Azure's metadata service.

The documentation is named in metadata_service.py.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from email.utils import formatdate
from typing import Any

from rehearsal.azure.http_server import Answer
from rehearsal.azure.metadata.metadata_state import Instance, State

Json = dict[str, Any] | list[Any] | str
Query = Mapping[str, str]

VERSIONS = """
2025-04-07 2024-07-17 2024-03-15 2023-11-15 2023-07-01 2021-12-13 2021-11-15 2021-11-01 2021-10-01
2021-08-01 2021-05-01 2021-03-01 2021-02-01 2021-01-01 2020-12-01 2020-10-01 2020-09-01 2020-07-15
2020-06-01 2019-11-01 2019-08-15 2019-08-01 2019-06-04 2019-06-01 2019-04-30 2019-03-11 2019-02-01
2018-10-01 2018-04-02 2018-02-01 2017-12-01 2017-10-01 2017-08-01 2017-04-02 2017-03-01
"""
EVENT_VERSIONS = "2020-07-01 2019-08-01 2019-04-01 2019-01-01 2017-11-01 2017-08-01 2017-03-01"

NOT_FOUND = Answer(404, {"error": "Not found"})


def refusal(path: str, query: Mapping[str, list[str]], headers: Mapping[str, str]) -> Answer | None:
    """Returns the refusal of a malformed request; names of headers are written As-This."""
    if headers.get("Metadata") != "true":
        what = "Required metadata header not specified"
        if path.startswith("/metadata/identity/"):
            return Answer(400, {"error": "bad_request_102", "error_description": what})
        return Answer(400, {"error": f"Bad request. {what}"})
    if "X-Forwarded-For" in headers:
        return Answer(400, {"error": "Bad request. X-Forwarded-For header is not allowed"})
    twice = sorted(name for name, values in query.items() if len(values) > 1)
    if twice:
        return Answer(400, {"error": f"Bad request. Duplicate query parameter: {twice[0]}"})
    versions = (EVENT_VERSIONS if path == "/metadata/scheduledevents" else VERSIONS).split()
    if query.get("api-version", [""])[0] not in versions:
        what = "api-version is invalid or was not specified in the request"
        error = f"Bad request. {what}. For more information refer to aka.ms/azureimds"
        return Answer(400, {"error": error, "newest-versions": versions[:3]})
    return None


def instance(of: Instance) -> dict[str, Any]:
    """Returns /metadata/instance as far as a rehearsal has it; all values are text."""
    group = f"/subscriptions/{of.subscription_id}/resourceGroups/{of.resource_group}"
    compute = f"{group}/providers/Microsoft.Compute"
    scale_set = f"{compute}/virtualMachineScaleSets/{of.scale_set}" if of.scale_set else ""
    subnet = ipaddress.ip_network(of.subnet or f"{of.address}/32")
    ipv4 = {
        "ipAddress": [{"privateIpAddress": of.address, "publicIpAddress": of.public_address}],
        "subnet": [{"address": str(subnet.network_address), "prefix": str(subnet.prefixlen)}],
    }
    return {
        "compute": {
            "azEnvironment": "AzurePublicCloud",
            "location": of.location,
            "name": of.name,
            "osType": "Linux",
            "priority": of.priority,
            "provider": "Microsoft.Compute",
            "resourceGroupName": of.resource_group,
            "resourceId": of.resource_id or f"{compute}/virtualMachines/{of.name}",
            "subscriptionId": of.subscription_id,
            "tags": ";".join(f"{name}:{value}" for name, value in of.tags.items()),
            "tagsList": [{"name": name, "value": value} for name, value in of.tags.items()],
            "userData": of.user_data,
            "virtualMachineScaleSet": {"id": scale_set},
            "vmId": of.vm_id,
            "vmScaleSetName": of.scale_set,
            "vmSize": of.vm_size,
        },
        "network": {"interface": [{"ipv4": ipv4, "ipv6": {"ipAddress": []}}]},
    }


def part(of: Json, route: list[str], query: Query) -> Answer:
    """Returns the part of a document that a route of keys and indexes leads to."""
    for key in route:
        if isinstance(of, dict) and key in of:
            of = of[key]
        elif isinstance(of, list) and key.isdecimal() and int(key) < len(of):
            of = of[int(key)]
        else:
            return NOT_FOUND
    if query.get("format", "json") == "text":
        return Answer(200, of if isinstance(of, str) else "\n".join(_names(of)))
    if isinstance(of, str):
        return Answer(400, {"error": "Bad request. A leaf needs format=text"})
    return Answer(200, of)


def events(state: State, to: Instance, now: float) -> list[dict[str, Any]]:
    """Returns the events that a machine sees: its own and its scale set's."""
    mates = {
        instance.name
        for instance in state.instances.values()
        if instance.name == to.name or (to.scale_set and instance.scale_set == to.scale_set)
    }
    documents = []
    for event in state.events.values():
        so_far = event.status(now)
        if so_far and mates & set(event.resources):
            later = so_far == "Scheduled"
            documents.append(
                {
                    "EventId": event.event_id,
                    "EventStatus": so_far,
                    "EventType": event.event_type,
                    "ResourceType": "VirtualMachine",
                    "Resources": list(event.resources),
                    "NotBefore": formatdate(event.not_before, usegmt=True) if later else "",
                    "Description": "",
                    "EventSource": "Platform",
                    "DurationInSeconds": -1,
                }
            )
    return documents


def _names(of: Json) -> list[str]:
    """Returns the next keys or indexes of a route; those with more below end in a slash."""
    pairs = of.items() if isinstance(of, dict) else enumerate(of)
    return [f"{key}" if isinstance(value, str) else f"{key}/" for key, value in pairs]
