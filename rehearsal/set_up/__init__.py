"""What a rehearsal needs before it can run: tools, base image, Azurite, Python environment."""

from __future__ import annotations

from rehearsal.set_up.atomic import Report
from rehearsal.set_up.base_image import has_base_image, make_base_image
from rehearsal.set_up.python_environment import has_python_environment, make_python_environment
from rehearsal.set_up.tools import has_azurite, make_azurite


def set_up(report: Report) -> None:
    """Makes what is not there yet; the caller holds the rehearsal_lock and has installed the tools.

    It reports when it starts to make something, and when that is done.
    """
    make_base_image(report)
    make_azurite(report)
    make_python_environment(report)


def is_set_up() -> bool:
    """Whether a rehearsal can start at once."""
    return has_base_image() and has_azurite() and has_python_environment()
