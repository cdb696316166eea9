"""The network: a bridge for each subnet, the NSGs, NAT, and an internet of two addresses."""

from __future__ import annotations

import json
from pathlib import Path

from rehearsal import paths
from rehearsal.network.nftables import ruleset
from rehearsal.paths import OWN_INTERFACE, PREFIX
from rehearsal.plan import Plan
from rehearsal.shell import run

PLATFORM = f"{PREFIX}-azure"
"""The interface with the addresses of what Azure itself provides."""
INTERNET = f"{PREFIX}-internet"
"""A network namespace, and the host's end of the cable to it."""
NSG_TABLE = f"{PREFIX}_nsg"
ADDRESSES_TABLE = f"{PREFIX}_addresses"
PLATFORM_TABLE = f"{PREFIX}_platform"
TABLES = (NSG_TABLE, ADDRESSES_TABLE, PLATFORM_TABLE)
SETTINGS = {
    "net.ipv4.ip_forward": "1",
    # The kernel has no connection tracking on bridges; so packets within a subnet pass the NSGs.
    "net.bridge.bridge-nf-call-iptables": "1",
}
REMEMBERED = paths.RUN / "sysctl.json"


def open_network() -> None:
    """Makes what is there before any subnet: Azure's own addresses and the internet."""
    for name, value in SETTINGS.items():
        _set(name, value)
    run("ip", "link", "add", PLATFORM, "type", "bridge")
    for address in (paths.METADATA_ADDRESS, paths.BLOB_ADDRESS):
        run("ip", "address", "add", f"{address}/32", "dev", PLATFORM)
    run("ip", "link", "set", PLATFORM, "up")
    prefix = paths.INTERNET.partition("/")[2]
    run("ip", "netns", "add", INTERNET)
    run("ip", "link", "add", INTERNET, "type", "veth", "peer", "name", "eth0", "netns", INTERNET)
    run("ip", "address", "add", f"{paths.INTERNET_GATEWAY}/{prefix}", "dev", INTERNET)
    run("ip", "link", "set", INTERNET, "up")
    inside = ["ip", "-n", INTERNET]
    for address in (paths.ADMIN_ADDRESS, paths.STRANGER_ADDRESS):
        run(*inside, "address", "add", f"{address}/{prefix}", "dev", "eth0")
    for name in ("lo", "eth0"):
        run(*inside, "link", "set", name, "up")
    run(*inside, "route", "add", "default", "via", paths.INTERNET_GATEWAY)


def apply(plan: Plan) -> None:
    """Makes bridges and rules what the plan says; rules change in one transaction each."""
    there = set(_links("bridge")) - {PLATFORM}
    wanted = {bridge.name for bridge in plan.bridges}
    for name in there - wanted:
        run("ip", "link", "del", name)
    for bridge in plan.bridges:
        if bridge.name not in there:
            run("ip", "link", "add", bridge.name, "type", "bridge", "forward_delay", "0")
            address = f"{bridge.gateway}/{bridge.cidr.prefixlen}"
            run("ip", "address", "add", address, "dev", bridge.name)
            run("ip", "link", "set", bridge.name, "up")
    run("nft", "-f", "-", text=ruleset(plan.nsgs, plan.virtual_network, NSG_TABLE))
    run("nft", "-f", "-", text=addresses(plan, _uplink()))
    run("nft", "-f", "-", text=platform(plan))


def addresses(plan: Plan, uplink: str) -> str:
    """Returns the rules by which public addresses lead to machines, and machines out."""
    public = {card.public_address: card.address for card in plan.cards if card.public_address}
    inwards = [f"ip daddr {outer} dnat to {inner}" for outer, inner in public.items()]
    may_leave = [str(bridge.cidr) for bridge in plan.bridges if bridge.has_nat]
    may_leave += list(public.values())
    outwards = [f'ip saddr {source} oifname "{uplink}" masquerade' for source in may_leave]
    return _table(
        ADDRESSES_TABLE,
        _chain("prerouting", "type nat hook prerouting priority dstnat", inwards),
        _chain("postrouting", "type nat hook postrouting priority srcnat", outwards),
    )


def platform(plan: Plan) -> str:
    """Returns the rules for what is Azure's own: machines reach nothing else of this host.

    The firewall of a results account stands here too: an address that it does not let in
    is dropped. All accounts share one address, so it is the union of theirs.
    """
    let_in = sorted({cidr for cidrs in plan.accounts.values() for cidr in cidrs})
    rules = ["ct state established,related accept"]
    rules += [f"ip daddr {paths.METADATA_ADDRESS} tcp dport 80 accept"]
    if let_in:
        sources = ", ".join(let_in) if "0.0.0.0/0" not in let_in else "0.0.0.0/0"
        rules += [f"ip daddr {paths.BLOB_ADDRESS} tcp dport 443 ip saddr {{ {sources} }} accept"]
    rules += ["icmp type echo-request accept", "counter drop"]
    interfaces = ", ".join(f'"{name}"' for name in [*(b.name for b in plan.bridges), INTERNET])
    from_machines = [f"iifname {{ {interfaces} }} jump machines"]
    return _table(
        PLATFORM_TABLE,
        "chain machines {\n" + "".join(f"    {rule}\n" for rule in rules) + "  }",
        _chain("input", "type filter hook input priority filter", from_machines),
    )


def cut(interface: str) -> None:
    """Pulls a machine's cable."""
    run("ip", "link", "set", interface, "down")


def mend(interface: str) -> None:
    run("ip", "link", "set", interface, "up")


def setting(name: str) -> str:
    """Returns a kernel parameter."""
    return _file(name).read_text().strip()


def close_network() -> None:
    """Removes all of it, whatever is left of it."""
    for table in TABLES:
        run("nft", "delete", "table", "ip", table, check=False)
    for kind in ("bridge", "veth"):
        for name in _links(kind):
            run("ip", "link", "del", name, check=False)
    run("ip", "netns", "del", INTERNET, check=False)
    if REMEMBERED.exists():
        for name, value in json.loads(REMEMBERED.read_text()).items():
            _file(name).write_text(value)


def _set(name: str, value: str) -> None:
    """Sets a kernel parameter and remembers what it was."""
    known = json.loads(REMEMBERED.read_text()) if REMEMBERED.exists() else {}
    known.setdefault(name, setting(name))
    REMEMBERED.parent.mkdir(parents=True, exist_ok=True)
    REMEMBERED.write_text(json.dumps(known))
    _file(name).write_text(value)


def _file(name: str) -> Path:
    return Path("/proc/sys", name.replace(".", "/"))


def _links(kind: str) -> list[str]:
    """Returns this rehearsal's interfaces of a kind."""
    found = json.loads(run("ip", "-json", "link", "show", "type", kind).stdout or "[]")
    names = [link["ifname"] for link in found if link]
    return [name for name in names if OWN_INTERFACE.fullmatch(name)]


def _uplink() -> str:
    """Returns the interface of the host's default route."""
    routes = json.loads(run("ip", "-json", "route", "show", "default").stdout)
    return str(routes[0]["dev"]) if routes else "lo"


def _chain(name: str, hook: str, rules: list[str]) -> str:
    body = "".join(f"    {rule}\n" for rule in rules)
    return f"chain {name} {{\n    {hook}; policy accept;\n{body}  }}"


def _table(name: str, *chains: str) -> str:
    """Returns text that replaces a table in one transaction."""
    body = "".join(f"  {chain}\n" for chain in chains)
    return f"table ip {name} {{}}\ndelete table ip {name}\ntable ip {name} {{\n{body}}}\n"
