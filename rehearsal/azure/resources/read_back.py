"""What Azure answers to a GET: not quite what it was sent.

Ids have another case, lists another order, and Azure has added properties, some of them later than
it has made the resource.
"""

from __future__ import annotations

from typing import Any

from rehearsal.azure.resources.property_changes import ID_PREFIX
from rehearsal.azure.resources.resource_kinds import Properties, Resource, Resources, all_of


def answered(resource_id: str, resource: Resource, others: Resources, settled: bool) -> Properties:
    """Returns what Azure answers for a resource.

    Args:
        settled: Whether Azure has had the time to finish what is around the resource. It had not
            when azure-native read the resource at the end of a PUT.
    """
    known = {**resource.inputs, **resource.added}
    if resource.kind == "StorageAccount" and "networkRuleSet" in known:
        state = "Succeeded" if settled else "Provisioning"
        rules = known["networkRuleSet"].get("virtualNetworkRules") or []
        stated = [{**rule, "state": state} for rule in rules]
        known["networkRuleSet"] = {**known["networkRuleSet"], "virtualNetworkRules": stated}
    if resource.kind == "PublicIPAddress" and settled:
        for gateway in _gateways_of(resource_id, others):
            known["natGateway"] = {"id": gateway}
    return {key: _normalised(value, settled) for key, value in known.items()}


def _gateways_of(address_id: str, resources: Resources) -> list[str]:
    """Returns the NAT gateways that have a public address."""
    return [
        gateway_id
        for gateway_id, gateway in all_of(resources, "NatGateway").items()
        if address_id in [one["id"] for one in gateway.inputs.get("publicIpAddresses") or []]
    ]


def _normalised(value: Any, settled: bool) -> Any:
    """Returns a value as Azure writes it: resource groups in capitals, once all is settled."""
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
