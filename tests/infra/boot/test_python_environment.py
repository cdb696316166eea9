"""make-python-environment: the real script, with a stub that answers as uv 0.13 does."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest

from infra.boot.cloud_config import FILES
from tests.infra.boot.boot_scripts import SCRIPTS, Machine

pytestmark = pytest.mark.slow

SCRIPT = FILES / "common" / SCRIPTS / "make-python-environment"
PYTHON3 = """\
# python3 -m pip install --target FOLDER, or take_environment.py NAME FOLDER with a shared one.
if [[ $1 != -m ]]; then
  [[ -e shared ]] || exit 1
  mkdir -p "$3/venv/bin"
  cp bin/ray "$3/venv/bin"
  cp shared "$3/venv/lock.sha256"
  exit 0
fi
while [[ $1 != --target ]]; do shift; done
mkdir -p "$2/bin"
ln -sf "$PWD/bin/uv" "$2/bin"
"""
UV = """\
case "$1 $2" in
  venv*) venv=${@: -1}; mkdir -p "$venv/bin"; ln -sf "$PWD/bin/ray" "$venv/bin/ray" ;;
  "pip compile") step=compile ;;
  "pip install") step=install ;;
esac
[[ -n ${step-} && -e $step ]] || exit 0
cat "$step" >&2
exit "$(cat code)"
"""
LOCK = "numpy==2.3.5 --hash=sha256:0\nray==2.60.0 --hash=sha256:0\n"
NO_SOLUTION = """\
error: No solution found when resolving dependencies
  cause: Because nosuch was not found in the package registry and you require nosuch, we can \
conclude that your requirements are unsatisfiable.
"""
NO_REQUIREMENT = "error: Couldn't parse requirement in `pip-packages.txt` at position 0\n"
NO_NETWORK = """\
error: Failed to fetch: https://index.example/simple/einops/
  cause: error sending request for url (https://index.example/simple/einops/)
"""


class Booting(Machine):
    """A machine with its boot files and nothing else."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.command("python3", PYTHON3)
        self.command("uv", UV)
        self.command("ray", "")
        self.write("etc/volley/requirements.txt", LOCK)
        self.write("etc/volley/apt-packages.txt", "")
        self.write("etc/volley/uv.txt", "uv==0.13.8\n")
        self.want("einops")

    def want(self, packages: str) -> None:
        self.write("etc/volley/pip-packages.txt", f"{packages}\n" if packages else "")

    def uv_fails(self, step: str, message: str, code: int) -> None:
        self.write(step, message)
        self.write("code", str(code))

    def make(self) -> subprocess.CompletedProcess[str]:
        return self.run(SCRIPT.read_text(), {"PYTHON_VERSION": "3.11"})


@pytest.fixture
def machine(tmp_path: Path) -> Booting:
    return Booting(tmp_path)


@pytest.mark.parametrize("packages", ["einops", ""])
def test_an_environment_is_made_once(machine: Booting, packages: str) -> None:
    machine.want(packages)
    done = machine.make()
    assert done.returncode == 0, done.stderr
    assert "is ready: ray==2.60.0" in done.stdout
    made = len(machine.called())
    assert machine.make().stdout.endswith("has this lock already\n")
    assert len(machine.called()) == made


def test_a_shared_environment_is_used_and_nothing_is_installed(machine: Booting) -> None:
    machine.make()
    lock = (machine.root / "opt/volley/venv/lock.sha256").read_text()
    machine.write("shared", lock)
    # The state that an interrupted boot leaves.
    machine.write("opt/volley/venv/lock.sha256", "")
    made = len(machine.called())
    assert machine.make().stdout.endswith("venv is ready, from the results account\n")
    assert [call.split()[0] for call in machine.called()[made:]] == ["python3"]
    assert machine.make().stdout.endswith("has this lock already\n")


@pytest.mark.parametrize("file", ["requirements", "pip-packages", "apt-packages"])
def test_another_environment_has_another_name(machine: Booting, file: str) -> None:
    def name() -> str:
        machine.make()
        (name, *_) = (machine.root / "opt/volley/environment.env").read_text().splitlines()
        return name

    machine.want("")
    machine.write("etc/systemd/system/ray-head.service", "")
    first = name()
    machine.write(f"etc/volley/{file}.txt", "scipy==1.17.0 --hash=sha256:0\n")
    machine.write("opt/volley/venv/lock.sha256", "")
    assert name() != first


def test_a_package_that_does_not_exist_is_final(machine: Booting) -> None:
    machine.uv_fails("compile", NO_SOLUTION, 1)
    done = machine.make()
    assert done.returncode == 78
    assert "pipPackages: error: No solution found" in done.stderr
    assert "nosuch was not found" in done.stderr


def test_a_build_that_lacks_the_network_is_not_final(machine: Booting) -> None:
    machine.uv_fails("compile", f"error: Failed to build `einops`\n{NO_NETWORK}", 1)
    assert machine.make().returncode not in (0, 78)


def test_text_that_is_not_a_requirement_is_final(machine: Booting) -> None:
    machine.uv_fails("compile", NO_REQUIREMENT, 2)
    assert machine.make().returncode == 78


@pytest.mark.parametrize("step", ["compile", "install"])
def test_a_network_that_does_not_answer_is_not_final(machine: Booting, step: str) -> None:
    machine.uv_fails(step, NO_NETWORK, 2)
    done = machine.make()
    assert done.returncode not in (0, 78)
    assert "Failed to fetch" in done.stderr
    (machine.root / step).unlink()
    assert machine.make().returncode == 0


def test_packages_are_resolved_before_gigabytes_are_downloaded(machine: Booting) -> None:
    machine.make()
    steps = [call.split(" --")[0] for call in machine.called() if call.startswith("uv pip")]
    assert steps == ["uv pip compile", "uv pip install", "uv pip install"]


def test_packages_may_not_move_a_version_of_the_lock(machine: Booting) -> None:
    machine.make()
    (resolve,) = [call for call in machine.called() if call.startswith("uv pip compile")]
    constraints = machine.root / "opt/volley/constraints.txt"
    assert f"--constraint {constraints}" in resolve
    assert constraints.read_text() == "numpy==2.3.5\nray==2.60.0\n"


def test_a_head_packs_what_it_has_made_before_ray_can_start(machine: Booting) -> None:
    machine.write("etc/systemd/system/ray-head.service", "")
    assert machine.make().returncode == 0
    archive = machine.root / "opt/volley/environment.tar.zst"
    listed = subprocess.run(["tar", "--list", "--file", archive], capture_output=True, check=True)
    assert b"venv/lock.sha256\n" in listed.stdout
    sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
    assert (machine.root / "opt/volley/environment.sha256").read_text() == f"{sha256}\n"
    variables = (machine.root / "opt/volley/environment.env").read_text().splitlines()
    assert variables[1] == f"SHA256={sha256}"


def test_an_environment_that_is_there_already_is_never_packed(machine: Booting) -> None:
    """An experiment's code may have run on this machine since it was made."""
    machine.make()
    machine.write("etc/systemd/system/ray-head.service", "")
    assert machine.make().returncode == 0
    assert not list((machine.root / "opt/volley").glob("environment.*"))


def test_a_disk_without_room_for_the_archive_does_not_keep_the_head_from_starting(
    machine: Booting,
) -> None:
    machine.write("etc/systemd/system/ray-head.service", "")
    machine.command("zstd", "exit 1")
    done = machine.make()
    assert done.returncode == 0
    assert "is ready" in done.stdout
    assert not list((machine.root / "opt/volley").glob("environment.*"))
