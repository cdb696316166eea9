"""The network on this machine: a bridge for each subnet, and an internet with a few addresses."""

from __future__ import annotations

import json
import os
import shutil
import signal
from contextlib import suppress
from pathlib import Path

from infra.config.check_access import PRIVATE
from rehearsal import addresses
from rehearsal.azure.management.management_service import HOST
from rehearsal.host_paths import OWN_INTERFACE, PREFIX, RUN
from rehearsal.host_plan import Plan
from rehearsal.host_shell import run
from rehearsal.network import nftables

PLATFORM = f"{PREFIX}-azure"
"""The interface with the addresses of Azure's own services."""
INTERNET = f"{PREFIX}-internet"
"""A network namespace, and the host's end of the cable to it."""
HOSTS = Path("/etc/netns") / INTERNET / "hosts"
NSG_TABLE = f"{PREFIX}_nsg"
TRAFFIC_TABLE = f"{PREFIX}_traffic"
ADDRESSES_TABLE = f"{PREFIX}_addresses"
PLATFORM_TABLE = f"{PREFIX}_platform"
SETTINGS = {
    "net.ipv4.ip_forward": "1",
    # Not every kernel tracks connections on bridges; this leads packets in a subnet to the NSGs.
    "net.bridge.bridge-nf-call-iptables": "1",
}
SAVED_SETTINGS = RUN / "sysctl.json"


def open_network() -> None:
    """Makes what exists before any subnet: Azure's own addresses and the internet."""
    for name, value in SETTINGS.items():
        _set(name, value)
    run("ip", "link", "add", PLATFORM, "type", "bridge")
    azure = (addresses.METADATA_ADDRESS, addresses.BLOB_ADDRESS, addresses.MANAGEMENT_ADDRESS)
    for address in azure:
        run("ip", "address", "add", f"{address}/32", "dev", PLATFORM)
    run("ip", "link", "set", PLATFORM, "up")
    gateway, prefix = addresses.INTERNET_GATEWAY, addresses.INTERNET.partition("/")[2]
    run("ip", "netns", "add", INTERNET)
    run("ip", "link", "add", INTERNET, "type", "veth", "peer", "name", "eth0", "netns", INTERNET)
    run("ip", "address", "add", f"{gateway}/{prefix}", "dev", INTERNET)
    run("ip", "link", "set", INTERNET, "up")
    inside = ["ip", "-n", INTERNET]
    people = (addresses.ADMIN_ADDRESS, addresses.STRANGER_ADDRESS)
    servers = (
        addresses.MLFLOW_ADDRESS,
        addresses.REGISTRY_ADDRESS,
        addresses.CHAT_ADDRESS,
        addresses.LOGS_ADDRESS,
    )
    for address in (*people, *servers):
        run(*inside, "address", "add", f"{address}/{prefix}", "dev", "eth0")
    # `ip netns exec` shows it as /etc/hosts.
    HOSTS.parent.mkdir(parents=True, exist_ok=True)
    HOSTS.write_text(f"127.0.0.1 localhost\n{addresses.MANAGEMENT_ADDRESS} {HOST}\n")
    for name in ("lo", "eth0"):
        run(*inside, "link", "set", name, "up")
    run(*inside, "route", "add", "default", "via", gateway)
    run("nft", "-f", "-", text=nftables.traffic_rules([_uplink(), INTERNET], TRAFFIC_TABLE))
    # Packets that arrive without NAT get no answer.
    for private in PRIVATE:
        run(*inside, "route", "add", "unreachable", str(private))


def apply(plan: Plan) -> None:
    """Makes the bridges and rules of a plan; removes others."""
    existing = set(_links("bridge")) - {PLATFORM}
    for name in existing - set(plan.bridges):
        run("ip", "link", "del", name)
    for name in plan.bridges:
        if name not in existing:
            run("ip", "link", "add", name, "type", "bridge", "forward_delay", "0")
            run("ip", "link", "set", name, "up")
        _set_addresses(name, plan.addresses(name))
    public = {outer: plan.machines[name].address for name, outer in plan.public_addresses.items()}
    nat_sources = [str(subnet.cidr) for subnet in plan.bridges.values() if subnet.has_nat]
    storage_clients = [cidr for account in plan.accounts.values() for cidr in account.let_in]
    endpoints = {endpoint.address: endpoint.clients for endpoint in plan.endpoints}
    managers = [machine.address for machine in plan.machines.values()]
    managers.append(addresses.ADMIN_ADDRESS)
    ours = [*plan.bridges, INTERNET]
    for rules in (
        nftables.nsg_rules(plan.nsgs, NSG_TABLE),
        nftables.address_rules(public, nat_sources, [_uplink(), INTERNET], ADDRESSES_TABLE),
        nftables.platform_rules(ours, storage_clients, endpoints, PLATFORM_TABLE, managers),
    ):
        run("nft", "-f", "-", text=rules)


def received(address: str) -> int:
    """Returns how many bytes a machine has received from the internet so far."""
    shown = run("nft", "-j", "list", "set", "ip", TRAFFIC_TABLE, nftables.RECEIVED).stdout
    return nftables.counted(shown).get(address, 0)


def setting(name: str) -> str:
    return _file(name).read_text().strip()


def close_network() -> None:
    """Removes whatever exists of the network."""
    for table in (NSG_TABLE, ADDRESSES_TABLE, PLATFORM_TABLE, TRAFFIC_TABLE):
        run("nft", "delete", "table", "ip", table, check=False)
    # A namespace outlives its name while processes run in it.
    for process in run("ip", "netns", "pids", INTERNET, check=False).stdout.split():
        with suppress(ProcessLookupError):
            os.kill(int(process), signal.SIGKILL)
    for kind in ("bridge", "veth"):
        for name in _links(kind):
            run("ip", "link", "del", name, check=False)
    run("ip", "netns", "del", INTERNET, check=False)
    shutil.rmtree(HOSTS.parent, ignore_errors=True)
    if SAVED_SETTINGS.exists():
        for name, value in json.loads(SAVED_SETTINGS.read_text()).items():
            _file(name).write_text(value)


def _set(name: str, value: str) -> None:
    """Sets a kernel parameter and saves its old value."""
    saved = json.loads(SAVED_SETTINGS.read_text()) if SAVED_SETTINGS.exists() else {}
    saved.setdefault(name, setting(name))
    SAVED_SETTINGS.write_text(json.dumps(saved))
    _file(name).write_text(value)


def _set_addresses(bridge: str, wanted: set[str]) -> None:
    """Gives a bridge exactly these addresses, which include their prefix lengths."""
    shown = json.loads(run("ip", "-4", "-json", "address", "show", "dev", bridge).stdout)
    entries = [entry for interface in shown for entry in interface.get("addr_info", [])]
    existing = {f"{entry['local']}/{entry['prefixlen']}" for entry in entries}
    for address in existing - wanted:
        run("ip", "address", "del", address, "dev", bridge)
    for address in wanted - existing:
        run("ip", "address", "add", address, "dev", bridge)


def _file(name: str) -> Path:
    return Path("/proc/sys", name.replace(".", "/"))


def _links(kind: str) -> list[str]:
    """Returns this rehearsal's interfaces of a kind."""
    links = json.loads(run("ip", "-json", "link", "show", "type", kind).stdout or "[]")
    names = [link["ifname"] for link in links if link]
    return [name for name in names if OWN_INTERFACE.fullmatch(name)]


def _uplink() -> str:
    """Returns the interface of the host's default route."""
    routes = json.loads(run("ip", "-json", "route", "show", "default").stdout)
    return str(routes[0]["dev"]) if routes else "lo"
