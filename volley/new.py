"""`volley new`: a folder with a Pulumi project and an experiment, so that nobody needs a clone."""

import argparse
import re
import shlex
import shutil
from pathlib import Path

from infra.project_files import PROJECT
from payload.command_line import command_name
from payload.errors import UserError

COPIED = (
    "Pulumi.dev.yaml",
    *(f"experiments/{name}.yaml" for name in ("pong", "pong-appo", "pong-gpu")),
)
PROGRAM = '''\
"""The stack's program: volley's own, from the Python environment in which volley is installed."""

from infra.__main__ import main

main()
'''
CLONES_OWN = re.compile(r"^main: .*\n|^ +virtualenv: .*\n", re.MULTILINE)
"""Lines of Pulumi.yaml that name the clone's program and Python."""
RUNTIME = "runtime:\n"
PYTHON = (
    "# `volley up` uses the Python that runs it; before `pulumi up`, activate its environment.\n"
)
IGNORED = "__pycache__/\nresults/\n"


def new(options: argparse.Namespace) -> int:
    """Writes the project; returns the exit code.

    Raises:
        UserError: The folder has something in it, or cannot be written.
    """
    folder: Path = options.folder
    try:
        if folder.exists() and any(folder.iterdir()):
            raise UserError(f"{folder}: is not empty; give a new folder")
        (folder / "experiments").mkdir(parents=True, exist_ok=True)
        settings = CLONES_OWN.sub("", (PROJECT / "Pulumi.yaml").read_text("utf-8"))
        (folder / "Pulumi.yaml").write_text(settings.replace(RUNTIME, PYTHON + RUNTIME, 1))
        (folder / "__main__.py").write_text(PROGRAM)
        (folder / ".gitignore").write_text(IGNORED)
        for name in COPIED:
            shutil.copyfile(PROJECT / name, folder / name)
    except OSError as error:
        raise UserError(f"{folder}: cannot be written: {error.strerror or error}") from None
    # Absolute: the next command changes the folder.
    volley = command_name(absolute=True)
    print(f"{folder}: a Pulumi project, the stack dev, and experiments/pong.yaml")
    print("Next:")
    print(f"  cd {shlex.quote(str(folder))}")
    print(f"  {volley} train experiments/pong.yaml")
    print("  pulumi stack init dev  # on Azure; then set the two values in Pulumi.dev.yaml")
    print(f"  {volley} up")
    return 0
