"""The network's rules as text for `nft -f -`: NSGs, public addresses, NAT and firewalls.

All tables are of the family `ip`, since not every kernel tracks connections on a bridge;
net.bridge.bridge-nf-call-iptables=1 passes bridged packets to them. A text replaces its table in
one transaction.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from rehearsal.addresses import BLOB_ADDRESS, MANAGEMENT_ADDRESS, METADATA_ADDRESS
from rehearsal.azure.network.nsg_evaluation import Nsg, filters
from rehearsal.azure.network.security_rules import ANYWHERE, Networks, Rule

RECEIVED = "received"
"""The set of machines that have received something from the internet."""
HOOKS = ("forward", "output", "input")
"""Between machines; from this host to a machine; from a machine to this host."""


def nsg_rules(nsgs: Sequence[Nsg], table: str) -> str:
    """Returns the rules of NSGs. Established connections survive a change, as on Azure.

    Every rule has a counter and a comment with its name: see `comment`.
    """
    jumps, chains = [], []
    for place, (direction, nsg, rules) in enumerate(filters(nsgs)):
        end = "saddr" if direction == "Outbound" else "daddr"
        chain = f"{direction.lower()}-{place}"
        jumps.append(f"ip {end} {_set(nsg.members)} jump {chain}")
        chains.append(_chain(chain, [_rule(nsg.name, rule) for rule in rules]))
    chains.append(_chain("machines", ["ct state established,related accept", *jumps]))
    for hook in HOOKS:
        chains.append(_hook(hook, f"filter hook {hook} priority filter", ["jump machines"]))
    return _table(table, *chains)


def comment(nsg: str, rule: str) -> str:
    """Returns a rule's comment: both names, each cut to 63 characters.

    nft takes no comment of more than 128.
    """
    return f"{nsg[:63]}/{rule[:63]}"


def address_rules(
    public_addresses: Mapping[str, str],
    nat_sources: Sequence[str],
    uplinks: Iterable[str],
    table: str,
) -> str:
    """Returns the rules that lead public addresses to machines, and machines to the internet.

    `public_addresses` maps public to private ones; `nat_sources` are the CIDRs of the subnets that
    have a NAT gateway; `uplinks` are the interfaces that lead to the internet.
    """
    inwards = [f"ip daddr {outer} dnat to {inner}" for outer, inner in public_addresses.items()]
    names = _names(uplinks)
    outwards = [
        f"ip saddr {source} oifname {names} masquerade"
        for source in (*nat_sources, *public_addresses.values())
    ]
    return _table(
        table,
        _hook("prerouting", "nat hook prerouting priority dstnat", inwards),
        _hook("postrouting", "nat hook postrouting priority srcnat", outwards),
    )


def platform_rules(
    interfaces: Iterable[str],
    storage_clients: Iterable[str],
    endpoints: Mapping[str, Sequence[str]],
    table: str,
    managers: Sequence[str] = (),
) -> str:
    """Returns the rules for Azure's own addresses: machines reach nothing else of this host.

    Args:
        interfaces: Those that lead to machines.
        storage_clients: CIDRs that pass the firewall of a storage account. All accounts share an
            address here, so these are the CIDRs of all accounts.
        endpoints: CIDRs of the virtual network by the address of an account's private endpoint,
            which has no firewall.
        managers: The machines that reach management.azure.com.
    """
    let_in = sorted(set(storage_clients))
    if "0.0.0.0/0" in let_in:
        let_in = ["0.0.0.0/0"]
    rules = ["ct state established,related accept"]
    rules += [f"ip daddr {METADATA_ADDRESS} tcp dport 80 accept"]
    if let_in:
        rules += [f"ip daddr {BLOB_ADDRESS} tcp dport 443 ip saddr {_set(let_in)} accept"]
    if managers:
        rules += [f"ip daddr {MANAGEMENT_ADDRESS} tcp dport 443 ip saddr {_set(managers)} accept"]
    for address, clients in endpoints.items():
        rules += [f"ip daddr {address} tcp dport 443 ip saddr {_set(clients)} accept"]
    rules += ["icmp type echo-request accept", "counter drop"]
    from_machines = [f"iifname {_names(interfaces)} jump machines"]
    return _table(
        table,
        _chain("machines", rules),
        _hook("input", "filter hook input priority filter", from_machines),
    )


def traffic_rules(uplinks: Iterable[str], table: str) -> str:
    """Returns the rules that count bytes from the internet by the receiving machine."""
    count = f"iifname {_names(uplinks)} add @{RECEIVED} {{ ip daddr counter }}"
    return _table(
        table,
        f"  set {RECEIVED} {{ type ipv4_addr; size 65536; flags dynamic; }}",
        _hook("forward", "filter hook forward priority filter", [count]),
    )


def counted(shown: str) -> dict[str, int]:
    """Returns the bytes by address from the output of `nft -j list set`."""
    (listed_set,) = [item["set"] for item in json.loads(shown)["nftables"] if "set" in item]
    elements = [item["elem"] for item in listed_set.get("elem", [])]
    return {element["val"]: element["counter"]["bytes"] for element in elements}


def _rule(nsg: str, rule: Rule) -> str:
    """Returns a rule of an NSG; an allowed packet continues to the next NSG."""
    matches = [
        *_match("meta l4proto", rule.protocols),
        *_match("ip saddr", _unless_anywhere(rule.sources)),
        *_match("ip daddr", _unless_anywhere(rule.destinations)),
        *_match("th sport", [_port_range(ports) for ports in rule.source_ports]),
        *_match("th dport", [_port_range(ports) for ports in rule.destination_ports]),
    ]
    verdict = "return" if rule.allows else "drop"
    return " ".join([*matches, f'counter {verdict} comment "{comment(nsg, rule.name)}"'])


def _match(what: str, values: Sequence[object]) -> list[str]:
    return [f"{what} {_set(values)}"] if values else []


def _unless_anywhere(networks: Networks) -> Networks:
    return () if networks == ANYWHERE else networks


def _port_range(ports: range) -> str:
    return str(ports[0]) if len(ports) == 1 else f"{ports[0]}-{ports[-1]}"


def _set(values: Iterable[object]) -> str:
    return f"{{ {', '.join(map(str, values))} }}"


def _names(interfaces: Iterable[str]) -> str:
    return _set(f'"{name}"' for name in interfaces)


def _hook(name: str, where: str, rules: Sequence[str]) -> str:
    return _chain(name, [f"type {where}; policy accept;", *rules])


def _chain(name: str, rules: Sequence[str]) -> str:
    return "\n".join([f"  chain {name} {{", *(f"    {rule}" for rule in rules), "  }"])


def _table(name: str, *chains: str) -> str:
    body = "\n".join(chains)
    return f"table ip {name} {{}}\ndelete table ip {name}\ntable ip {name} {{\n{body}\n}}\n"
