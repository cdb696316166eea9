"""What can be wrong with the machines: their sizes, their number and what they are to carry."""

from __future__ import annotations

import re
from collections.abc import Iterator

from infra.config.problem import Problem
from infra.config.settings import StackSettings
from infra.config.vm_sizes import LOCATIONS, RETIRED, SIZES, UNSUITABLE
from payload.experiment import nearest

LARGEST_SHARED_MEMORY = 0.8
"""Of a machine's memory: Ray's objects live there, and processes need the rest."""
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
DEBIAN_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]+(=[A-Za-z0-9.+~:-]+)?")
"""https://www.debian.org/doc/debian-policy/ch-controlfields.html#source, and =version for apt."""
CREDENTIALS = re.compile(r"://(?!git@)[^/\s]*@")
LEGIBLE = "carries a name or a key that everybody on the machines could read"


def check_machines(settings: StackSettings) -> Iterator[Problem]:
    """Azure has the machines, and they can do what they are told."""
    yield from check_sizes(settings)
    yield from check_location(settings)
    yield from check_image(settings)
    yield from check_shared_memory(settings)
    yield from check_variables(settings)
    yield from check_pip_packages(settings)
    yield from check_apt_packages(settings)
    yield from check_tracking_uri(settings)


def check_sizes(settings: StackSettings) -> Iterator[Problem]:
    """Sizes exist, and are still sold."""
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


def check_location(settings: StackSettings) -> Iterator[Problem]:
    """The location exists."""
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


def check_shared_memory(settings: StackSettings) -> Iterator[Problem]:
    """The smaller machine has room for it."""
    sizes = [settings.head_size, *([settings.worker_size] if settings.max_workers else [])]
    machines = [SIZES[size] for size in sizes if size in SIZES]
    smallest = min(machines, key=lambda machine: machine.memory_gib, default=None)
    wanted = settings.shared_memory_gib
    if smallest is not None and wanted > LARGEST_SHARED_MEMORY * smallest.memory_gib:
        share = f"{LARGEST_SHARED_MEMORY:.0%}".replace("%", " %")
        allowed = f"is more than {share} of the {smallest.memory_gib:g} GiB of {smallest.size}"
        yield Problem("sharedMemoryGib", wanted, allowed)


def check_variables(settings: StackSettings) -> Iterator[Problem]:
    """A shell and systemd can set them. Values are never shown."""
    for name in settings.environment_variables:
        if not VARIABLE.fullmatch(name):
            allowed = "a name has letters, digits and underscores, and starts with no digit"
            yield Problem("environmentVariables", name, allowed)


def check_pip_packages(settings: StackSettings) -> Iterator[Problem]:
    """Packages and nothing else, without a key: customData is no place for secrets."""
    for package in settings.pip_packages:
        before, scheme, _ = package.partition("://")
        if "\n" in package:
            yield Problem("pipPackages", package, "is more than one line; name one package each")
        elif CREDENTIALS.search(package):
            yield Problem("pipPackages", f"{before}{scheme}...", LEGIBLE)
        elif package.startswith("-"):
            yield Problem("pipPackages", package, "is an option of pip, not a package")


def check_tracking_uri(settings: StackSettings) -> Iterator[Problem]:
    """The tracking server's address has no key in it: customData is no place for secrets."""
    uri = settings.mlflow_tracking_uri
    if CREDENTIALS.search(uri):
        yield Problem("mlflowTrackingUri", f"{uri.partition('://')[0]}://...", LEGIBLE)


def check_apt_packages(settings: StackSettings) -> Iterator[Problem]:
    """Names as Debian's policy has them, with or without a version."""
    for package in settings.apt_packages:
        if not DEBIAN_PACKAGE.fullmatch(package):
            allowed = "is no name of a Debian package; give htop or htop=3.0.5-7build2, for example"
            yield Problem("aptPackages", package, allowed)
