"""How the command `volley` is typed in the shell that has started this process."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path


def command_name(absolute: bool = False) -> str:
    """Returns "volley", or the path of its script if the PATH does not lead to it.

    `make train` leaves a shell without an activated environment: .venv/bin/volley.

    Args:
        absolute: Whether the path must work in another folder.
    """
    script = Path(sys.executable).with_name("volley")
    on_path = shutil.which("volley")
    if not script.exists() or (on_path is not None and os.path.samefile(on_path, script)):
        return "volley"
    here = Path.cwd()
    if script.is_relative_to(here) and not absolute:
        script = script.relative_to(here)
    return shlex.quote(str(script))


def ui_command(results: Path) -> str:
    """Returns the command that serves MLflow's pages of the runs in a folder."""
    default = results.resolve() == Path("results").resolve()
    return f"{command_name()} ui" + ("" if default else f" --results {shlex.quote(str(results))}")
