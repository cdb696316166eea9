"""An NSG as Azure evaluates it: by priority, the first rule that matches decides.

https://learn.microsoft.com/azure/virtual-network/network-security-groups-overview
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from rehearsal.azure.security_rules import DEFAULT_RULES, is_at, is_in, values_of
from tests.infra.stack import Declared

VNET = "10.42.0.0/16"


@dataclass(frozen=True)
class Nsg:
    """The inbound rules of one NSG, Azure's own included."""

    rules: list[dict[str, Any]]

    @classmethod
    def of(cls, inputs: dict[str, Any]) -> Nsg:
        rules = [*inputs["securityRules"], *DEFAULT_RULES]
        inbound = [rule for rule in rules if rule["direction"] == "Inbound"]
        return cls(sorted(inbound, key=lambda rule: int(rule["priority"])))

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
            if rule["protocol"] in ("*", protocol)
            and any(
                is_in(source, prefix, [VNET])
                for prefix in values_of(rule, "sourceAddressPrefix", "es")
            )
        ]


def _allowed(rules: list[dict[str, Any]], port: int) -> bool:
    decides = next(
        rule
        for rule in rules
        if any(is_at(port, text) for text in values_of(rule, "destinationPortRange", "s"))
    )
    return bool(decides["access"] == "Allow")
