"""Lifts what a machine imposes on processes where it would keep Ray or torch from starting."""

import os
import pwd
import resource
import sys
import warnings

from payload.errors import UserError

WARNINGS = ("PYTHONWARNINGS", "PYTHONDEVMODE")
"""Variables that can turn warnings of Ray's own code into errors."""


def lift_machine_limits() -> None:
    """Changes this process and those that it starts.

    Raises:
        UserError: A limit of the machine cannot be changed.
    """
    if sys.warnoptions:
        warnings.filterwarnings("default")
    for name in WARNINGS:
        os.environ.pop(name, None)
    _name_the_user()
    _allow_large_files()


def _name_the_user() -> None:
    """Gives a user id without a name, as in many containers, one for getpass.getuser."""
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        os.environ.setdefault("LOGNAME", str(os.getuid()))


def _allow_large_files() -> None:
    """Raises the limit for a file's size, which counts for Ray's shared memory too."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    if hard != resource.RLIM_INFINITY:
        raise UserError(
            f"ulimit -f: a file may have {hard // 1024:,} KiB, but Ray's shared memory is a file "
            "of gigabytes. Next: ulimit -f unlimited, or ask who sets the limit"
        )
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
