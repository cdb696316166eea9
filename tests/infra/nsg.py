"""An NSG as Azure evaluates it: by priority, the first rule that matches decides.

https://learn.microsoft.com/azure/virtual-network/network-security-groups-overview
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from typing import Any, Literal

from tests.infra.stack import Declared

VNET = "10.42.0.0/16"


def _default(priority: int, name: str, access: str, source: str) -> dict[str, Any]:
    return {
        "name": name,
        "priority": priority,
        "direction": "Inbound",
        "access": access,
        "protocol": "*",
        "sourceAddressPrefix": source,
        "destinationPortRange": "*",
    }


DEFAULT_RULES = [
    _default(65000, "AllowVnetInBound", "Allow", "VirtualNetwork"),
    _default(65001, "AllowAzureLoadBalancerInBound", "Allow", "AzureLoadBalancer"),
    _default(65500, "DenyAllInBound", "Deny", "*"),
]


@dataclass(frozen=True)
class Nsg:
    """The inbound rules of one NSG, Azure's own included."""

    rules: list[dict[str, Any]]

    @classmethod
    def of(cls, inputs: dict[str, Any]) -> Nsg:
        inbound = [rule for rule in inputs["securityRules"] if rule["direction"] == "Inbound"]
        return cls(sorted([*inbound, *DEFAULT_RULES], key=lambda rule: int(rule["priority"])))

    @classmethod
    def before(cls, declared: Declared, role: Literal["head", "worker"]) -> Nsg:
        """The only NSG between a machine and the network: of its subnet or of its interface."""
        if role == "head":
            interface = declared.one("NetworkInterface")
        else:
            profile = declared.one("VirtualMachineScaleSet")["virtualMachineProfile"]
            (interface,) = profile["networkProfile"]["networkInterfaceConfigurations"]
        (address,) = interface["ipConfigurations"]
        subnets = [s.inputs for s in declared.all("Subnet") if s.id == address["subnet"]["id"]]
        (nsg,) = filter(None, [x.get("networkSecurityGroup") for x in (interface, *subnets)])
        return cls.of(declared.by_id(nsg["id"]).inputs)

    def allows(self, source: str, port: int, protocol: str = "Tcp") -> bool:
        """Whether a packet from an address reaches a port."""
        return _allowed(self._about(source, protocol), port)

    def open_ports(self, source: str, protocol: str = "Tcp") -> set[int]:
        """Every port that a packet from an address reaches."""
        rules = self._about(source, protocol)
        return {port for port in range(65_536) if _allowed(rules, port)}

    def _about(self, source: str, protocol: str) -> list[dict[str, Any]]:
        return [
            rule
            for rule in self.rules
            if rule["protocol"] in ("*", protocol) and _is_from(source, rule["sourceAddressPrefix"])
        ]


def _allowed(rules: list[dict[str, Any]], port: int) -> bool:
    return bool(next(rule for rule in rules if _is_to(port, rule))["access"] == "Allow")


def _is_from(address: str, prefix: str) -> bool:
    tags = {"*": "0.0.0.0/0", "VirtualNetwork": VNET, "AzureLoadBalancer": "168.63.129.16/32"}
    return ip_address(address) in ip_network(tags.get(prefix, prefix))


def _is_to(port: int, rule: dict[str, Any]) -> bool:
    ranges = rule.get("destinationPortRanges") or [rule["destinationPortRange"]]
    for text in ranges:
        low, _, high = text.partition("-")
        if text == "*" or int(low) <= port <= int(high or low):
            return True
    return False
