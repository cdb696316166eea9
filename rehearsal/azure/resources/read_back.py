"""Azure's answer to a GET, which differs from what was sent.

Ids have another case and lists another order. Azure also adds properties, some of them some time
after it made the resource.
"""

from __future__ import annotations

from typing import Any

from rehearsal.azure.resources.property_changes import ID_PREFIX
from rehearsal.azure.resources.resource_kinds import Properties, Resource, Resources, all_of


def answered(resource_id: str, resource: Resource, others: Resources, settled: bool) -> Properties:
    """Returns a resource as Azure reads it back.

    Args:
        settled: Whether Azure has finished what surrounds the resource. When azure-native reads a
            resource at the end of a PUT, it has not.
    """
    answer = {**resource.inputs, **resource.added}
    if resource.kind == "StorageAccount" and "networkRuleSet" in answer:
        state = "Succeeded" if settled else "Provisioning"
        rules = answer["networkRuleSet"].get("virtualNetworkRules") or []
        stated = [{**rule, "state": state} for rule in rules]
        answer["networkRuleSet"] = {**answer["networkRuleSet"], "virtualNetworkRules": stated}
    if resource.kind == "PublicIPAddress" and settled:
        for gateway in _gateways_of(resource_id, others):
            answer["natGateway"] = {"id": gateway}
    return {key: _normalised(value, settled) for key, value in answer.items()}


def _gateways_of(address_id: str, resources: Resources) -> list[str]:
    """Returns the NAT gateways that use a public address."""
    return [
        gateway_id
        for gateway_id, gateway in all_of(resources, "NatGateway").items()
        if address_id
        in [address["id"] for address in gateway.inputs.get("publicIpAddresses") or []]
    ]


def _normalised(value: Any, settled: bool) -> Any:
    """Returns a value as Azure writes it: settled resource groups are in capitals."""
    if isinstance(value, dict):
        return {key: _normalised(item, settled) for key, item in value.items()}
    if isinstance(value, list):
        items = [_normalised(item, settled) for item in value]
        texts = all(isinstance(item, str) for item in items)
        return sorted(items, reverse=True) if texts else items
    if isinstance(value, str) and settled and ID_PREFIX.match(value):
        *start, group, providers, rest = value.split("/", 6)
        return "/".join([*start, group.upper(), providers, rest])
    return value
