"""Conda packages are installed once a machine, by hash, and each process there finds them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from payload.environments.conda_prefix import activated, packages_of, prefix_of
from payload.environments.conda_solution import solved, write_lock
from payload.environments.conda_worker import LOCK
from payload.errors import TemporaryError, UserError
from payload.experiment.conda_dependencies import CondaDependencies
from tests.conda_channel import served

pytestmark = pytest.mark.slow

Lock = Callable[..., Path]


@pytest.fixture(scope="module")
def lock(channel: Path, tmp_path_factory: pytest.TempPathFactory) -> Lock:
    """Makes a lock file of packages."""

    def make(*packages: str, url: str = channel.as_uri()) -> Path:
        path = tmp_path_factory.mktemp("lock") / LOCK
        write_lock(solved(CondaDependencies([url], list(packages))), path)
        return path

    return make


@pytest.fixture(scope="module")
def prefix(lock: Lock, tmp_path_factory: pytest.TempPathFactory) -> Path:
    packages = ("greeter", "greeter-home", "greetlib", "other-numpy")
    return prefix_of(lock(*packages), tmp_path_factory.mktemp("pre fixes"))


def output(prefix: Path, *command: str) -> str:
    """Returns what a command says in the activated prefix."""
    environment = {**os.environ, **activated(prefix)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_program_is_on_the_path_and_finds_its_own_files(prefix: Path) -> None:
    assert output(prefix, "greet") == "hello world"


def test_what_activation_scripts_set_is_set_and_what_they_print_is_not_read(prefix: Path) -> None:
    assert activated(prefix)["GREETER_HOME"] == f"{prefix}/x"
    assert activated(prefix)["CONDA_PREFIX"] == str(prefix)


def test_a_python_package_is_imported_and_run_by_the_python_that_trains(prefix: Path) -> None:
    assert output(prefix, "greet-lib") == sys.prefix
    assert output(prefix, "python", "-c", "import greetlib; greetlib.main()") == sys.prefix


def test_a_package_never_hides_one_of_the_environment_that_trains(prefix: Path) -> None:
    assert (packages_of(prefix) / "numpy.py").exists()
    code = "import numpy; print(numpy.__version__)"
    assert output(prefix, sys.executable, "-c", code).startswith("2.")


def test_a_process_that_has_been_activated_needs_nothing_more(
    prefix: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in activated(prefix).items():
        monkeypatch.setenv(name, value)
    assert activated(prefix) == {}


def test_a_prefix_is_made_once(lock: Lock, tmp_path: Path) -> None:
    path = lock("greeter-data")
    first = prefix_of(path, tmp_path)
    (first / "mine").touch()
    assert (prefix_of(path, tmp_path) / "mine").exists()


def test_what_a_killed_process_has_left_is_not_taken_for_a_prefix(
    lock: Lock, tmp_path: Path
) -> None:
    path = lock("greeter")
    first = prefix_of(path, tmp_path)
    first.rename(tmp_path / f".{first.name}")
    (tmp_path / f".{first.name}/share/whom.txt").unlink()
    assert output(prefix_of(path, tmp_path), "greet") == "hello world"


@pytest.fixture
def copied(channel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the channel that a test may damage, of which nothing is in rattler's cache."""
    monkeypatch.setenv("RATTLER_CACHE_DIR", str(tmp_path / "cache"))
    return Path(shutil.copytree(channel, tmp_path / "copied"))


@pytest.mark.parametrize("server", [True, False])
def test_a_package_with_another_hash_is_refused(
    copied: Path, lock: Lock, tmp_path: Path, server: bool
) -> None:
    with served(copied) as url:
        path = lock("greeter-data", url=url if server else copied.as_uri())
        (package,) = copied.glob("noarch/greeter-data-*")
        (other,) = copied.glob("noarch/cowsay-*")
        shutil.copyfile(other, package)
        with pytest.raises(UserError, match=r"^conda_packages: .*hash mismatch"):
            prefix_of(path, tmp_path / "prefixes")
    assert not list((tmp_path / "prefixes").glob("conda-*"))


def test_a_package_that_is_gone_may_come_back(copied: Path, lock: Lock, tmp_path: Path) -> None:
    path = lock("greeter-data", url=copied.as_uri())
    (package,) = copied.glob("noarch/greeter-data-*")
    package.rename(copied / "away")
    with pytest.raises(TemporaryError, match=r"^conda_packages: .*No such file .*greeter-data"):
        prefix_of(path, tmp_path / "prefixes")
    (copied / "away").rename(package)
    assert (prefix_of(path, tmp_path / "prefixes") / "share/whom.txt").exists()


# The worker


def worker(folder: Path, home: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Runs a command as Ray starts a worker in its working directory."""
    return subprocess.run(
        [sys.executable, "-m", "payload.environments.conda_worker", *command],
        env={**os.environ, "HOME": str(home)},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_worker_installs_what_the_working_directory_asks_for(lock: Lock, tmp_path: Path) -> None:
    done = worker(lock("greeter").parent, tmp_path, "sh", "-c", "greet; exit 7")
    assert (done.stdout, done.returncode) == ("hello world\n", 7), done.stderr
    assert list((tmp_path / ".cache/volley").glob("conda-*"))


def test_a_worker_that_cannot_install_says_why_in_one_line(
    copied: Path, lock: Lock, tmp_path: Path
) -> None:
    path = lock("greeter", url=copied.as_uri())
    shutil.rmtree(copied)
    done = worker(path.parent, tmp_path, "greet")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("conda_packages: [Errno 2] No such file")
