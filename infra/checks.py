"""What can be wrong with a stack's configuration, each check by itself."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Network, NetmaskValueError
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import yaml

from infra.machines import LOCATIONS, RETIRED, SIZES, UNSUITABLE, nearest

if TYPE_CHECKING:
    from infra.settings import StackSettings

AZURE_RESERVED_ADDRESSES = 5
"""Of each subnet: network, gateway, two for DNS, broadcast."""
SMALLEST_SUBNET = 29
EXPERIMENT_SCHEMA = Path("payload/experiment.schema.json")


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong."""

    key: str
    value: object
    """Shown, so never a secret."""
    allowed: str
    """What is wrong with it and what would be right."""

    def __str__(self) -> str:
        return f"{self.key}: {json.dumps(self.value)}: {self.allowed}"


def check_settings(settings: StackSettings, root: Path) -> Iterator[Problem]:
    """Yields all that is wrong with settings whose types are right."""
    yield from check_admin_cidr(settings)
    yield from check_ssh_key(settings)
    yield from check_machines(settings)
    yield from check_image(settings)
    yield from check_workers(settings)
    yield from check_network(settings)
    yield from check_resource_ids(settings)
    yield from check_experiment(settings, root)


def check_admin_cidr(settings: StackSettings) -> Iterator[Problem]:
    """SSH is open to somebody, but not to everybody."""
    key, value = "adminCidr", settings.admin_cidr
    if not value:
        yield Problem(
            key, value, "required: the addresses that may use SSH, for example 203.0.113.7/32"
        )
        return
    network = parse_cidr(value)
    if network is None:
        yield Problem(key, value, "must be an IPv4 CIDR, for example 203.0.113.7/32")
    elif network.prefixlen == 0 and not settings.allow_public_ssh:
        yield Problem(
            key, value, "opens SSH to the whole internet; set allowPublicSsh to true if you mean it"
        )


def check_ssh_key(settings: StackSettings) -> Iterator[Problem]:
    """The key is a public one of a kind that Azure takes. It is never shown."""
    key, value = "sshPublicKey", settings.ssh_public_key.strip()
    if not value:
        yield Problem(key, value, "required: the text of ~/.ssh/id_ed25519.pub or id_rsa.pub")
    elif "PRIVATE KEY" in value:
        yield Problem(key, "(hidden)", "is a private key; give the public one, the file in .pub")
    elif not is_public_key(value):
        allowed = "must be one line, ssh-ed25519 or ssh-rsa and the key, as in a .pub file"
        yield Problem(key, f"{value[:16]}...", allowed)


def check_machines(settings: StackSettings) -> Iterator[Problem]:
    """Sizes and location exist, and are still sold."""
    for key, size in (("headSize", settings.head_size), ("workerSize", settings.worker_size)):
        retired = RETIRED.get(size)
        if retired is not None:
            yield Problem(
                key, size, f"retired on {retired.date}; its successor is {retired.successor}"
            )
        elif size in UNSUITABLE:
            yield Problem(key, size, UNSUITABLE[size])
        elif size not in SIZES:
            yield Problem(key, size, f"is no size known here{nearest(size, SIZES)}")
    if settings.location not in LOCATIONS:
        allowed = f"is no Azure location{nearest(settings.location, LOCATIONS)}"
        yield Problem("location", settings.location, allowed)


def check_image(settings: StackSettings) -> Iterator[Problem]:
    """The image is a marketplace's or a resource."""
    image = settings.image
    resource = image.startswith("/subscriptions/") and "/images/" in image
    if not resource and not re.fullmatch(r"[^:/]+(:[^:/]+){3}", image):
        allowed = "must be publisher:offer:sku:version, or /subscriptions/.../images/..."
        yield Problem("image", image, allowed)


def check_workers(settings: StackSettings) -> Iterator[Problem]:
    """As many workers as were asked for can be there."""
    if settings.max_workers < settings.min_workers:
        allowed = f"is less than minWorkers, {settings.min_workers}"
        yield Problem("maxWorkers", settings.max_workers, allowed)
    subnet = parse_cidr(settings.worker_subnet_cidr)
    if subnet is None or settings.worker_subnet_id:
        return
    room = subnet.num_addresses - AZURE_RESERVED_ADDRESSES
    if settings.max_workers > room:
        yield Problem(
            "workerSubnetCidr",
            settings.worker_subnet_cidr,
            f"has room for {max(0, room)} machines, fewer than maxWorkers, {settings.max_workers}",
        )


def check_network(settings: StackSettings) -> Iterator[Problem]:
    """Both subnets lie in the virtual network, apart from each other."""
    keys = {
        "vnetCidr": settings.vnet_cidr,
        "headSubnetCidr": settings.head_subnet_cidr,
        "workerSubnetCidr": settings.worker_subnet_cidr,
    }
    networks = {key: parse_cidr(value) for key, value in keys.items()}
    for key, network in networks.items():
        if network is None:
            yield Problem(key, keys[key], "must be an IPv4 CIDR, for example 10.42.0.0/24")
        elif network.prefixlen > SMALLEST_SUBNET:
            yield Problem(key, keys[key], f"is smaller than Azure's smallest, /{SMALLEST_SUBNET}")
    vnet, head, worker = networks.values()
    for key, subnet in list(networks.items())[1:]:
        if vnet is not None and subnet is not None and not subnet.subnet_of(vnet):
            yield Problem(key, keys[key], f"lies outside vnetCidr, {vnet}")
    if head is not None and worker is not None and head.overlaps(worker):
        yield Problem("workerSubnetCidr", str(worker), f"overlaps headSubnetCidr, {head}")


def check_resource_ids(settings: StackSettings) -> Iterator[Problem]:
    """What exists already is named by its resource id."""
    subnet = "Microsoft.Network/virtualNetworks/<vnet>/subnets/<subnet>"
    ids = {
        "headSubnetId": (settings.head_subnet_id, subnet),
        "workerSubnetId": (settings.worker_subnet_id, subnet),
        "resultsAccountId": (
            settings.results_account_id,
            "Microsoft.Storage/storageAccounts/<account>",
        ),
    }
    for key, (value, kind) in ids.items():
        template = f"/subscriptions/<id>/resourceGroups/<group>/providers/{kind}"
        pattern = re.sub("<[^>]*>", "[^/]+", template)
        if value and not re.fullmatch(pattern, value, re.IGNORECASE):
            yield Problem(key, value, f"must look like {template}")
    if bool(settings.head_subnet_id) != bool(settings.worker_subnet_id):
        missing = "workerSubnetId" if settings.head_subnet_id else "headSubnetId"
        yield Problem(missing, "", "required too: both subnets exist, or neither does")


def check_experiment(settings: StackSettings, root: Path) -> Iterator[Problem]:
    """The payload would take the experiment, and the head has the GPU that it asks for."""
    key, path = "experiment", root / settings.experiment
    try:
        experiment: Any = yaml.safe_load(path.read_text())
    except OSError as error:
        yield Problem(key, settings.experiment, f"cannot be read ({error.strerror})")
        return
    except yaml.YAMLError:
        yield Problem(key, settings.experiment, "is no YAML")
        return
    if not isinstance(experiment, dict):
        yield Problem(key, settings.experiment, "must be a mapping of run, env, config and stop")
        return
    schema = json.loads((root / EXPERIMENT_SCHEMA).read_text())
    for refused in jsonschema.Draft202012Validator(schema).iter_errors(experiment):
        # Behind "null or a mapping" stands what is wrong with the mapping.
        deepest = jsonschema.exceptions.best_match([refused])
        yield Problem(f"{key} {settings.experiment}", *explain(deepest or refused))
    config = experiment.get("config") or {}
    asked = config.get("num_gpus", config.get("num_gpus_per_learner", 0))
    size = SIZES.get(settings.head_size)
    if size is not None and isinstance(asked, int | float) and asked > size.gpus:
        yield Problem(
            "headSize",
            settings.head_size,
            f"has {size.gpus} GPUs; the experiment asks for {asked:g}",
        )


def explain(error: jsonschema.ValidationError) -> tuple[object, str]:
    """Returns the value that a schema refuses, and why, with the nearest known key."""
    path = ".".join(str(part) for part in error.absolute_path)
    if error.validator == "additionalProperties":
        schema: Any = error.schema
        given: Any = error.instance
        known = schema["properties"]
        unknown = next(name for name in given if name not in known)
        where = f"{path}.{unknown}" if path else unknown
        return where, f"unknown key{nearest(unknown, known)}"
    return {path: error.instance}, error.message


def parse_cidr(text: str) -> IPv4Network | None:
    """Returns the network, or None where the text is no CIDR (10.0.0.5/24 has host bits: none)."""
    try:
        return IPv4Network(text)
    except (AddressValueError, NetmaskValueError, ValueError):
        return None


def is_public_key(text: str) -> bool:
    """Whether a line is an OpenSSH public key of a kind that Azure takes for Linux."""
    kind, _, rest = text.partition(" ")
    if kind not in ("ssh-rsa", "ssh-ed25519") or "\n" in text:
        return False
    try:
        blob = base64.b64decode(rest.split()[0], validate=True)
    except (binascii.Error, IndexError):
        return False
    return blob[4 : 4 + len(kind)] == kind.encode()
