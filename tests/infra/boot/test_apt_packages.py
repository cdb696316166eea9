"""install-apt-packages: the real script, with a stub of apt whose sources may not answer."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from infra.boot.cloud_config import FILES
from tests.infra.boot.boot_scripts import SCRIPTS, Machine

pytestmark = pytest.mark.slow

SCRIPT = FILES / "common" / SCRIPTS / "install-apt-packages"
APT = """\
case "$*" in
  *update*) error="E: Failed to fetch https://third.party/" fault=dead-source ;;
  *install*) error="E: Unable to locate package nosuch, or dpkg was interrupted" fault=nosuch ;;
esac
[[ ! -e $fault ]] || { echo "$error" >&2; exit 100; }
"""


class Booting(Machine):
    """A machine that has python3-pip already."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.command("apt-get", APT)
        self.command("dpkg", "[[ ! -e interrupted ]] || rm interrupted nosuch")
        self.command("dpkg-query", "[[ ${@: -1} != python3-pip ]] || printf installed")
        self.want()

    def want(self, *packages: str) -> None:
        lines = "".join(f"{package}\n" for package in ("python3-pip", *packages))
        self.write("etc/volley/apt-packages.txt", lines)

    def install(self, patience_s: int = 0) -> subprocess.CompletedProcess[str]:
        return self.run(SCRIPT.read_text(), {"PATIENCE_S": str(patience_s)})


@pytest.fixture
def machine(tmp_path: Path) -> Booting:
    return Booting(tmp_path)


def test_a_machine_that_has_every_package_asks_no_source(machine: Booting) -> None:
    assert machine.install().returncode == 0
    assert not [call for call in machine.called() if call.startswith("apt-get")]


def test_only_what_is_missing_is_installed(machine: Booting) -> None:
    machine.want("htop=3.0.5-7build2")
    done = machine.install()
    assert done.returncode == 0, done.stderr
    assert machine.called()[-1].endswith("install --yes --no-install-recommends htop=3.0.5-7build2")


def test_an_installation_that_a_shutdown_has_interrupted_is_continued(machine: Booting) -> None:
    machine.want("htop")
    for file in ("interrupted", "nosuch"):
        machine.write(file, "")
    assert machine.install().returncode == 0
    assert "dpkg --configure -a" in machine.called()


def test_a_source_that_nothing_needs_may_be_dead(machine: Booting) -> None:
    machine.want("htop")
    machine.write("dead-source", "")
    done = machine.install()
    assert done.returncode == 0, done.stderr


def test_a_package_that_no_source_has_is_told_at_once(machine: Booting) -> None:
    machine.want("nosuch")
    machine.write("nosuch", "")
    done = machine.install(patience_s=60)
    assert done.returncode == 1
    assert "E: Unable to locate package nosuch" in done.stderr
    assert done.stderr.endswith("nosuch cannot be installed; the package sources answered\n")


def test_a_package_of_a_source_that_is_away_is_tried_again(machine: Booting) -> None:
    machine.want("nosuch")
    machine.write("nosuch", "")
    machine.write("dead-source", "")
    machine.command("sleep", "rm nosuch")
    assert machine.install(patience_s=60).returncode == 0


def test_a_source_that_stays_away_is_told(machine: Booting) -> None:
    machine.want("nosuch")
    machine.write("nosuch", "")
    machine.write("dead-source", "")
    done = machine.install()
    assert done.returncode == 1
    assert done.stderr.endswith("cannot be installed; the package sources did not all answer\n")
