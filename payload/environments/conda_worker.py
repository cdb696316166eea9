"""Runs a command with an experiment's conda packages; Ray starts its workers with it.

    python -m payload.environments.conda_worker COMMAND [ARGUMENT ...]

The first worker on a machine installs the packages from the lock file in the working directory,
below the home directory of Ray's user; others wait for it. Later workers find them there.
"""

import os
import sys
from pathlib import Path
from typing import NoReturn

from payload.errors import TemporaryError, UserError

LOCK = "volley_conda.lock"
"""The lock file's name in the folder of installed packages, which becomes the working directory."""
MACHINE = Path("~/.cache/volley")
"""The folder of prefixes on a machine of a cluster."""


def main(command: list[str]) -> NoReturn:
    from payload.environments.conda_prefix import activated

    try:
        os.environ.update(activated(machine_prefix(Path(LOCK))))
    except (UserError, TemporaryError) as error:
        sys.exit(str(error))
    os.execvp(command[0], command)


def machine_prefix(lock: Path) -> Path:
    """Returns this machine's prefix of a lock file, see `prefix_of`."""
    from payload.environments.conda_prefix import prefix_of

    return prefix_of(lock, MACHINE.expanduser())


if __name__ == "__main__":
    main(sys.argv[1:])
