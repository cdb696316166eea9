"""Checks of the machines: sizes, location, image, memory, packages and variables."""

import re
from collections.abc import Iterator

from infra.config.check_sizes import check_sizes
from infra.config.cost import unpriced
from infra.config.stack_settings import Problem, StackSettings
from infra.config.vm_sizes import LOCATIONS
from payload.experiment import nearest

LARGEST_SHARED_MEMORY = 0.8
"""Share of a machine's memory; processes need the rest."""
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
DEBIAN_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]+(=[A-Za-z0-9.+~:-]+)?")
"""https://www.debian.org/doc/debian-policy/ch-controlfields.html#source, and =version for apt."""
CREDENTIALS = re.compile(r"://(?!git@)[^/\s]*@")
NEVER_SLEEPS = "has no effect with scaling: cpu (such a cluster never sleeps); use demand or fixed"
EMAIL = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")
MOST_EMAILS = 50
"""https://learn.microsoft.com/rest/api/consumption/budgets/create-or-update"""
LEGIBLE = "contains credentials, which every user of the machines could read"


def check_machines(settings: StackSettings) -> Iterator[Problem]:
    """Checks that Azure offers the machines, and that they fit the settings."""
    if settings.location not in LOCATIONS:
        allowed = f"is not an Azure location{nearest(settings.location, LOCATIONS)}"
        yield Problem("location", settings.location, allowed)
    yield from check_sizes(settings)
    yield from check_limits(settings)
    yield from check_image(settings)
    yield from check_shared_memory(settings)
    yield from check_environment(settings)


def check_limits(settings: StackSettings) -> Iterator[Problem]:
    """Refuses limits that have no effect: a cluster that Azure scales never sleeps."""
    if settings.scaling == "cpu":
        for key, value in (("maxHours", settings.max_hours), ("budget", settings.budget)):
            if value:
                yield Problem(key, value, NEVER_SLEEPS)
    for address in settings.contact_emails:
        if not EMAIL.fullmatch(address):
            yield Problem("contactEmails", address, "must be an address such as me@example.com")
    if settings.contact_emails and not settings.budget:
        yield Problem("contactEmails", settings.contact_emails, "needs a budget")
    if len(settings.contact_emails) > MOST_EMAILS:
        allowed = f"too many addresses; Azure allows {MOST_EMAILS}"
        yield Problem("contactEmails", len(settings.contact_emails), allowed)
    if settings.budget and (unknown := unpriced(settings)):
        allowed = f"needs the price of {' and '.join(unknown)}, which is unknown; run make prices"
        allowed += ", or set 0"
        yield Problem("budget", settings.budget, allowed)


def check_image(settings: StackSettings) -> Iterator[Problem]:
    """Checks that the image is a marketplace image or a resource id."""
    image = settings.image
    resource = image.startswith("/subscriptions/") and "/images/" in image
    if not resource and not re.fullmatch(r"[^:/]+(:[^:/]+){3}", image):
        allowed = "must be publisher:offer:sku:version, or /subscriptions/.../images/..."
        yield Problem("image", image, allowed)


def check_shared_memory(settings: StackSettings) -> Iterator[Problem]:
    """Checks that the smallest machine has the memory."""
    sizes = [settings.head_size, *([settings.worker_size] if settings.max_workers else [])]
    table = settings.catalog.sizes
    machines = [table[size] for size in sizes if size in table]
    smallest = min(machines, key=lambda machine: machine.memory_gib, default=None)
    wanted = settings.shared_memory_gib
    if smallest is not None and wanted > LARGEST_SHARED_MEMORY * smallest.memory_gib:
        share = f"{LARGEST_SHARED_MEMORY:.0%}".replace("%", " %")
        allowed = f"is more than {share} of the {smallest.memory_gib:g} GiB of {smallest.size}"
        yield Problem("sharedMemoryGib", wanted, allowed)


def check_environment(settings: StackSettings) -> Iterator[Problem]:
    """Checks that variables and packages have valid names, and no address has credentials.

    A variable's value is never shown. customData is not secret.
    """
    for name in settings.environment_variables:
        if not VARIABLE.fullmatch(name):
            allowed = (
                "must have letters, digits and underscores only, and must not start with a digit"
            )
            yield Problem("environmentVariables", name, allowed)
    for package in settings.pip_packages:
        before, scheme, _ = package.partition("://")
        if "\n" in package:
            yield Problem(
                "pipPackages", package, "is more than one line; give one package per item"
            )
        elif CREDENTIALS.search(package):
            yield Problem("pipPackages", f"{before}{scheme}...", LEGIBLE)
        elif package.startswith("-"):
            yield Problem("pipPackages", package, "is an option of pip, not a package")
    uri = settings.mlflow_tracking_uri
    if CREDENTIALS.search(uri):
        yield Problem("mlflowTrackingUri", f"{uri.partition('://')[0]}://...", LEGIBLE)
    for package in settings.apt_packages:
        if not DEBIAN_PACKAGE.fullmatch(package):
            allowed = "is not a Debian package name; for example htop or htop=3.0.5-7build2"
            yield Problem("aptPackages", package, allowed)
