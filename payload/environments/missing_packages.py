"""Says what helps if an environment cannot be imported or made for want of a package."""

import re

from gymnasium.error import DependencyNotInstalled

from payload.environments.retired_names import successor

REQUIREMENT = re.compile(r"""pip install ["']?([\w.-]+(?:\[[\w,.-]+\])?)""")
"""Gymnasium's own errors end with the command that installs what is missing."""


def remedy(error: BaseException) -> str:
    """Returns what helps against an error, to be put after its text; "" if nothing is known."""
    while error.__cause__ is not None:
        error = error.__cause__
    if retired := successor(error):
        return f"; {retired}"
    requirements = REQUIREMENT.findall(str(error))
    if isinstance(error, DependencyNotInstalled) and requirements:
        return f". Next: pip_packages: [{requirements[-1]}]"
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f". Next: add the PyPI package of {error.name} to pip_packages"
    return ""
