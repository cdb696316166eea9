"""The prerequisites of a rehearsal: tools, base image, Azurite, Python environment."""

from __future__ import annotations

from rehearsal.set_up import images
from rehearsal.set_up.tools import has_azurite, has_registry, make_azurite, make_registry


def set_up() -> None:
    """Makes what is missing; the caller holds the rehearsal_lock and has installed the tools."""
    images.make_base_image()
    make_azurite()
    make_registry()
    images.make_python_environment()


def is_set_up() -> bool:
    made = (images.has_base_image, has_azurite, has_registry, images.has_python_environment)
    return all(is_there() for is_there in made)
