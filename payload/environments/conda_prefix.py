"""Conda packages on one machine: a prefix is installed once, and activated for each process.

A prefix contains its own path, so it cannot be copied to another machine.
"""

import hashlib
import json
import os
import shlex
import shutil
import site
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

from rattler import Client, RepoDataRecord, install
from rattler.exceptions import InstallerError
from rattler.shell import ActivationVariables, activate

from payload.environments.conda_solution import KEY, given_python, read_lock, reason_of, run
from payload.environments.inputs import file_lock
from payload.errors import TemporaryError, UserError

ACTIVATE = "activate.sh"
"""In a prefix: what the packages' activation scripts set, for example JAVA_HOME."""
OF_THE_SHELL = frozenset({"_", "OLDPWD", "PWD", "SHLVL"})


def prefix_of(lock: Path, folder: Path) -> Path:
    """Returns the prefix with a lock file's packages below `folder`; installs them the first time.

    Raises:
        UserError: A package is not the one that was solved for.
        TemporaryError: A package cannot be downloaded or written.
    """
    key = [lock.read_text(), sys.executable, sys.version]
    name = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:12]
    final = folder.absolute() / f"conda-{name}"
    # Only a complete prefix has this name.
    if not final.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        with file_lock(folder / f".{final.name}.lock"):
            if not final.is_dir():
                _install(lock, final)
    return final


def activated(prefix: Path) -> dict[str, str]:
    """Returns the environment variables that a process with the prefix has and this one has not."""
    code = "import json, os; print(json.dumps(dict(os.environ)))"
    command = ["bash", "-c", '. "$0" >&2; exec "$@"', str(prefix / ACTIVATE)]
    done = subprocess.run(
        [*command, sys.executable, "-ISc", code], stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode != 0:
        raise UserError(f"{KEY}: an activation script below {prefix}/etc/conda fails")
    variables: dict[str, str] = json.loads(done.stdout)
    # Behind the environment's own packages, none of which it may hide.
    path = [variables.get("PYTHONPATH", ""), *site.getsitepackages(), str(packages_of(prefix))]
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    for name in ("PATH", "PYTHONPATH"):
        folders = variables[name].split(os.pathsep)
        variables[name] = os.pathsep.join(dict.fromkeys(folders))
    return {
        name: value
        for name, value in variables.items()
        if name not in OF_THE_SHELL and os.environ.get(name) != value
    }


def packages_of(prefix: Path) -> Path:
    """Returns the folder of a prefix's Python packages."""
    return prefix / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"


def _install(lock: Path, final: Path) -> None:
    aside = final.with_name(f".{final.name}")
    shutil.rmtree(aside, ignore_errors=True)  # Left by a killed process.
    records = read_lock(lock)
    try:
        _check_local(records)
        run(
            install(
                # The installer has to know the version of Python.
                [*records, given_python()],
                aside,
                ignored_packages={"python"},
                alternative_target_prefix=final,
                client=Client.default_client(),  # It retries.
                show_progress=False,
            )
        )
        _add_python(aside)
        script = activate(aside, ActivationVariables(current_path=[str(final / "bin")])).script
        (aside / ACTIVATE).write_text(script.replace(str(aside), str(final)))
        aside.rename(final)
    except (InstallerError, OSError) as error:
        reason = reason_of(error)
        kind = UserError if "hash mismatch" in reason else TemporaryError
        raise kind(f"{KEY}: {reason}") from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _check_local(records: list[RepoDataRecord]) -> None:
    """Raises UserError for a file of another hash; of local files, rattler checks none."""
    for record in records:
        url = urlsplit(record.url)
        if url.scheme == "file":
            content = Path(unquote(url.path)).read_bytes()
            if hashlib.sha256(content).digest() != record.sha256:
                raise UserError(f"{KEY}: {record.url}: hash mismatch")


def _add_python(prefix: Path) -> None:
    """Makes the programs of Python packages run with this process's Python."""
    (prefix / "bin").mkdir(exist_ok=True)
    for name in ("python", f"python{sys.version_info[0]}.{sys.version_info[1]}"):
        program = prefix / "bin" / name
        program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
        program.chmod(0o755)
