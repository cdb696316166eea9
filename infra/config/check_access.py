"""Checks of access: addresses, user name and SSH key."""

import base64
import binascii
from collections.abc import Iterator
from ipaddress import IPv4Network

from infra.config.check_network import parse_cidr
from infra.config.stack_settings import Problem, StackSettings

LARGEST_ADMIN_NETWORK = 16
"""Prefix length; a larger network needs allowPublicSsh."""
PRIVATE = [IPv4Network(cidr) for cidr in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")]
"""RFC 1918: private at any size."""
_REFUSED_BY_AZURE = """\
administrator admin user user1 test user2 test1 user3 admin1 a actuser adm admin2 aspnet backup
console david guest john owner root server sql support support_388945a0 sys test2 test3 user4
user5
"""
"""osProfile.adminUsername in
https://learn.microsoft.com/rest/api/compute/virtual-machines/create-or-update
"""
_ON_THE_MACHINES = """\
daemon bin sync games man lp mail news uucp proxy www-data list irc nobody nogroup sudo docker ray
identity mlflow
"""
"""Users and groups; the last three are volley's."""
TAKEN_USERNAMES = frozenset(f"{_REFUSED_BY_AZURE}{_ON_THE_MACHINES}".split())


def check_access(settings: StackSettings) -> Iterator[Problem]:
    yield from check_admin_cidr(settings)
    yield from check_ssh_key(settings)
    if settings.admin_username in TAKEN_USERNAMES:
        yield Problem(
            "adminUsername",
            settings.admin_username,
            "is reserved by Azure or taken on the machines; use another, for example azureuser",
        )


def check_admin_cidr(settings: StackSettings) -> Iterator[Problem]:
    """Checks that SSH is open to known networks, not to the whole internet."""
    key = "adminCidr"
    if not settings.admin_cidrs:
        allowed = "required: the addresses that may use SSH, for example 203.0.113.7/32"
        yield Problem(key, settings.admin_cidr, allowed)
    for value in settings.admin_cidrs:
        network = parse_cidr(value)
        if network is None:
            yield Problem(key, value, "must be an IPv4 CIDR, for example 203.0.113.7/32")
        elif is_wide(network) and not settings.allow_public_ssh:
            allowed = (
                f"opens SSH to more of the internet than a /{LARGEST_ADMIN_NETWORK}; "
                "set allowPublicSsh to true if you mean it"
            )
            yield Problem(key, value, allowed)


def is_wide(network: IPv4Network) -> bool:
    """Whether a network is larger than one organisation needs."""
    return network.prefixlen < LARGEST_ADMIN_NETWORK and not is_private(network)


def is_private(network: IPv4Network) -> bool:
    """Whether all addresses of a network are private."""
    return any(network.subnet_of(private) for private in PRIVATE)


def check_ssh_key(settings: StackSettings) -> Iterator[Problem]:
    """Checks that each key is a public key of a type that Azure accepts; never shows one."""
    key = "sshPublicKey"
    if not settings.ssh_public_keys:
        yield Problem(key, "", "required: the text of ~/.ssh/id_ed25519.pub or id_rsa.pub")
    elif "PRIVATE KEY" in settings.ssh_public_key:
        yield Problem(key, "(hidden)", "is a private key; give the public key, the .pub file")
        return
    for value in settings.ssh_public_keys:
        if not is_public_key(value):
            allowed = "must be one key per line (ssh-ed25519 or ssh-rsa), as in .pub files"
            yield Problem(key, f"{value[:16]}...", allowed)


def is_public_key(text: str) -> bool:
    """Whether a line is an OpenSSH public key of a type that Azure accepts for Linux."""
    kind, _, rest = text.partition(" ")
    if kind not in ("ssh-rsa", "ssh-ed25519") or "\n" in text:
        return False
    try:
        blob = base64.b64decode(rest.split()[0], validate=True)
    except (binascii.Error, IndexError):
        return False
    return blob[4 : 4 + len(kind)] == kind.encode()
