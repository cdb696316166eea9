"""What conda adds to the environment that trains, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from payload.environments.conda_solution import python_packages, read_lock, solved, write_lock
from payload.errors import TemporaryError, UserError
from payload.experiment.conda_dependencies import CondaDependencies
from tests.conda_channel import served


@pytest.fixture
def wanted(channel: Path) -> Callable[..., CondaDependencies]:
    return lambda *packages: CondaDependencies([channel.as_uri()], list(packages))


Wanted = Callable[..., CondaDependencies]


def names(wanted: CondaDependencies) -> list[str]:
    return sorted(record.name.normalized for record in solved(wanted))


def refusal(wanted: CondaDependencies) -> str:
    with pytest.raises(UserError) as error:
        solved(wanted)
    return str(error.value)


def test_a_package_comes_with_what_it_depends_on(wanted: Wanted) -> None:
    assert names(wanted("greeter =1")) == ["greeter", "greeter-data"]


def test_python_and_what_the_environment_has_are_not_installed(wanted: Wanted) -> None:
    assert names(wanted("greetlib", "numpy>=2", "python")) == ["greetlib"]


def test_a_distribution_is_known_by_its_name_on_conda_forge(wanted: Wanted) -> None:
    assert names(wanted("pytorch>=2", "typing-extensions", "pyyaml")) == []


@pytest.mark.parametrize(
    ("package", "words"),
    [
        ("python=3.6", "python=3.6: the Python environment that trains has python 3."),
        ("numpy<1.20", "numpy<1.20: the Python environment that trains has numpy 2."),
        ("needs-old-numpy", "needs-old-numpy 1.0 would require numpy <1.20"),
        ("needs-python-2", "needs-python-2 1.0 would require python 2.7.*"),
        ("greeter>=7", "No candidates were found for greeter >=7"),
        ("greter", "greter: no such package in file://"),
        ("greter", "(did you mean greeter?)"),
        ("greeter <<3", "'greeter <<3': unable to parse version spec: <<3"),
    ],
)
def test_what_cannot_be_installed_is_one_line(wanted: Wanted, package: str, words: str) -> None:
    line = refusal(wanted(package))
    assert line.startswith("conda_packages: ")
    assert words in line


def test_an_invalid_channel_is_refused(tmp_path: Path) -> None:
    line = refusal(CondaDependencies([tmp_path.as_uri()], ["greeter"]))
    assert f"could not find subdir 'noarch' in channel '{tmp_path.as_uri()}/'" in line


def test_a_lock_file_reads_back_as_the_same_packages(wanted: Wanted, tmp_path: Path) -> None:
    records = solved(wanted("greeter", "greetlib"))
    write_lock(records, tmp_path / "lock")
    read = read_lock(tmp_path / "lock")
    assert {(r.url, r.sha256, r.depends[0] if r.depends else "") for r in read} == {
        (r.url, r.sha256, r.depends[0] if r.depends else "") for r in records
    }
    assert python_packages(read) == {"greetlib": "1.5"}


def test_a_lock_file_may_have_no_packages(tmp_path: Path) -> None:
    write_lock([], tmp_path / "lock")
    assert read_lock(tmp_path / "lock") == []


# Channels on a server


@pytest.mark.slow
def test_a_channel_may_be_on_a_server(channel: Path) -> None:
    with served(channel) as url:
        assert names(CondaDependencies([url], ["greeter"])) == ["greeter", "greeter-data"]


@pytest.mark.slow
def test_a_server_without_the_channel_is_refused(channel: Path) -> None:
    with served(channel, 404) as url:
        assert "404 Not Found" in refusal(CondaDependencies([url], ["greeter"]))


@pytest.mark.slow
@pytest.mark.parametrize("path", ["//me:sEcret@127.0.0.1:9/a", "//127.0.0.1:9/t/sEcret/a"])
def test_an_error_does_not_tell_the_secret_of_a_channel(path: str) -> None:
    with pytest.raises(TemporaryError, match="does not answer") as error:
        solved(CondaDependencies([f"http:{path}"], ["greeter"]))
    assert "sEcret" not in str(error.value)


@pytest.mark.slow
def test_a_server_that_fails_may_work_later(channel: Path) -> None:
    with (
        served(channel, 503) as url,
        pytest.raises(TemporaryError, match=r"^conda_packages: the channel does not answer: .*503"),
    ):
        solved(CondaDependencies([url], ["greeter"]))
    with pytest.raises(TemporaryError, match="Connection refused"):
        solved(CondaDependencies([url], ["greeter"]))
