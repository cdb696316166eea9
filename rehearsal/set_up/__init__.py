"""The prerequisites of a rehearsal: tools, base image, Azurite, Python environment."""

from __future__ import annotations

from rehearsal.set_up import images
from rehearsal.set_up.tools import has_azurite, make_azurite


def set_up() -> None:
    """Makes what is missing; the caller holds the rehearsal_lock and has installed the tools."""
    images.make_base_image()
    make_azurite()
    images.make_python_environment()


def is_set_up() -> bool:
    return images.has_base_image() and has_azurite() and images.has_python_environment()
