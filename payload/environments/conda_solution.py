"""Conda packages of an experiment, beside the Python environment that trains.

That environment stays: its Python starts the workers, and its torch, Ray and RLlib are 6 GB that
conda would have to install again. The solver takes Python and everything that is installed there as
given, so it adds only what is missing, and refuses a package that needs another version. What it
adds becomes a prefix of its own: programs on the PATH, libraries, and Python packages, which are
imported after those of the environment.

A solution is a lock file with URLs and SHA-256. It travels, and every machine installs from it (see
conda_prefix.py). `rattler` is the solver and installer of pixi: https://github.com/conda/rattler.
"""

import asyncio
import re
import sys
import time
from collections.abc import Coroutine, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from packaging.version import InvalidVersion, Version
from rattler import (
    BuildString,
    Channel,
    Client,
    Gateway,
    LockChannel,
    LockFile,
    LockPlatform,
    MatchSpec,
    PackageRecord,
    RepoDataRecord,
    Subdir,
    VirtualPackage,
    solve,
)
from rattler.exceptions import GatewayError, InvalidMatchSpecError, SolverError

from payload.environments.installed_versions import installed_versions
from payload.errors import TemporaryError, UserError, nearest, without_secrets
from payload.experiment.conda_dependencies import CondaDependencies

KEY = "conda_packages"
GIVEN = "file:///given"
"""The channel of records that stand for what is installed."""
DEFAULTS = "https://repo.anaconda.com/pkgs/main"
"""conda's channel `defaults`."""
CONDA_NAMES = {
    "matplotlib": ["matplotlib-base"],
    "pyarrow": ["pyarrow-core"],
    "ray": ["ray-core", "ray-default", "ray-rllib", "ray-tune"],
    "torch": ["pytorch"],
}
"""What distributions are called on conda-forge, besides their own names."""
OTHER_THINGS = frozenset({"cuda-toolkit", "tzdata"})
"""Distributions whose names mean something else on conda-forge."""
TREE = re.compile(r"[×╰─▶│├└ \n]+")
"""The tree that the solver draws around its reasons."""
TOKEN = re.compile(r"(?<=/t/)[^/\s]+")
"""A token in the path of a channel's URL."""
Result = TypeVar("Result")


def solved(wanted: CondaDependencies) -> list[RepoDataRecord]:
    """Returns the packages to install, without those that are given.

    Raises:
        UserError: A package or channel does not exist, or needs another version of what is given.
        TemporaryError: A channel does not answer.
    """
    given = list(_given())
    specs = [_spec(text, given) for text in wanted.packages]
    channels = [Channel(DEFAULTS if name == "defaults" else name) for name in wanted.channels]
    # The machines of a cluster differ in their CPUs.
    machine = [virtual.into_generic() for virtual in VirtualPackage.detect()]
    machine = [virtual for virtual in machine if virtual.name.source != "__archspec"]
    gateway = Gateway(client=Client.default_client())  # It retries.
    try:
        records = run(
            solve(channels, specs, gateway, pinned_packages=given, virtual_packages=machine)
        )
    except GatewayError as error:
        _no_channel(error)
    except SolverError as error:
        names = run(gateway.names(channels, [Subdir.current(), "noarch"]))
        _check_names(specs, channels, {name.normalized for name in names})
        raise UserError(f"{KEY}: {TREE.sub(' ', str(error)).strip()}") from None
    added = [record for record in records if not record.url.startswith(GIVEN)]
    for record in added:
        if record.sha256 is None:
            raise UserError(f"{KEY}: {record.file_name} has no SHA-256 in its channel's index")
    return added


def python_packages(records: Iterable[RepoDataRecord]) -> dict[str, str]:
    """Returns the versions of those that are Python packages, by name, where pip can read them."""
    versions = {}
    for record in records:
        if any(needed.split()[0] == "python" for needed in record.depends):
            with suppress(InvalidVersion):
                versions[record.name.normalized] = str(Version(str(record.version)))
    return versions


def write_lock(records: Iterable[RepoDataRecord], path: Path) -> None:
    """Writes a lock file in the format of pixi.lock."""
    platform = LockPlatform(str(Subdir.current()))
    lock = LockFile([platform])
    lock.set_channels("default", [LockChannel(url) for url in {r.channel: 0 for r in records}])
    for record in records:
        lock.add_conda_package("default", platform, record)
    lock.to_path(path)


def read_lock(path: Path) -> list[RepoDataRecord]:
    """Returns the packages of a lock file for this platform."""
    environment = LockFile.from_path(path).default_environment()
    locked = environment.conda_repodata_records() if environment else {}
    return locked.get(str(Subdir.current()), [])


def given_python() -> RepoDataRecord:
    """Returns a record that stands for this process's Python, as conda-forge would call it."""
    major, minor, micro = sys.version_info[:3]
    build = "0_cpython" if minor < 13 else f"0_cp{major}{minor}"
    return _record("python", f"{major}.{minor}.{micro}", build)


def run(call: Coroutine[Any, Any, Result]) -> Result:
    """Returns what an asynchronous function of rattler returns.

    The thread that has delivered it still needs Python for a moment. If Python ended meanwhile, it
    would abort this process: https://github.com/PyO3/pyo3-async-runtimes/issues/40.
    """
    try:
        return asyncio.run(call)
    finally:
        time.sleep(0.1)


def reason_of(error: Exception) -> str:
    """Returns an error of rattler in one line, without passwords and tokens."""
    return _without_secrets(str(error).replace("\nCaused by:", ";"))


def _without_secrets(text: str) -> str:
    return TOKEN.sub("***", without_secrets(text))


def _given() -> Iterator[RepoDataRecord]:
    """Yields a record for Python, and for each distribution in the environment that trains."""
    yield given_python()
    names: dict[str, str] = {}
    for name, version in installed_versions().items():
        plain = re.sub(r"[-_.]+", "-", name.lower())
        if plain not in OTHER_THINGS:
            aliases = (name.lower(), plain, plain.replace("-", "_"), *CONDA_NAMES.get(plain, []))
            names |= dict.fromkeys(aliases, version)
    for name, version in names.items():
        yield _record(name, version, "0")


def _record(name: str, version: str, build: str) -> RepoDataRecord:
    file = f"{name}-{version}-{build}.conda"
    record = PackageRecord(name, version, BuildString(build), 0, "noarch")
    return RepoDataRecord(record, file, f"{GIVEN}/{file}", GIVEN)


def _spec(text: str, given: list[RepoDataRecord]) -> MatchSpec:
    """Returns a package in conda's notation; raises UserError if what is given contradicts it."""
    try:
        spec = MatchSpec(text)
    except InvalidMatchSpecError as error:
        raise UserError(f"{KEY}: {text!r}: {error}") from None
    for record in given:
        if record.name.normalized == spec.name.normalized and not spec.matches(record):
            raise UserError(
                f"{KEY}: {text}: the Python environment that trains has {record.name.source} "
                f"{record.version} and keeps it; allow this version, or leave {text} out"
            )
    return spec


def _check_names(specs: list[MatchSpec], channels: list[Channel], names: set[str]) -> None:
    """Raises UserError for a package that is not among the names in the channels."""
    for name in (spec.name.normalized for spec in specs):
        if name not in names and name not in {record.name.normalized for record in _given()}:
            urls = _without_secrets(", ".join(channel.base_url for channel in channels))
            raise UserError(f"{KEY}: {name}: no such package in {urls}{nearest(name, names)}")


def _no_channel(error: GatewayError) -> NoReturn:
    reason = reason_of(error)
    if "could not find subdir" in reason:
        raise UserError(f"{KEY}: {reason}; channels are names, https:// or file:// URLs") from None
    raise TemporaryError(f"{KEY}: the channel does not answer: {reason}") from None
