"""Root runs nothing that an experiment's code could have written, on any machine."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from infra.boot import cloud_config, head_wheel
from tests.infra.boot.machine_tree import ROLES, machine, write_tree

RAYS = re.compile(r"/opt/volley/(venv|python|jupyter)/|/var/lib/volley\b")
"""What ray may write, and the Python environment, which would import what it may write."""
BOOT = Path(cloud_config.__file__).parent
UNITS = sorted(
    path.name for folder in (BOOT / "files", head_wheel.UNITS) for path in folder.rglob("*.service")
)


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The files of machines of both roles."""
    everything = {
        "containers": True,
        "container_registry": "i.azurecr.io",
        "journals_url": "https://logs.example.com",
    }
    return [
        write_tree(machine(role, **everything), tmp_path_factory.mktemp(role)) for role in ROLES
    ]


def commands_of_root(unit: Path, tree: Path) -> list[str]:
    """Returns what a unit runs as root: its commands, their scripts' text, where they run."""
    text = unit.read_text().replace("\\\n", "")
    as_root = not re.search(r"^User=", text, re.M)
    commands = [
        command
        for command in re.findall(r"^Exec\w+=(.*)$", text, re.M)
        if as_root or command.lstrip("-@:|").startswith(("+", "!"))
    ]
    called = re.findall(r"/usr/local/lib/volley/[\w.-]+", " ".join(commands))
    scripts = [tree / path.lstrip("/") for path in called]
    places = re.findall(r"^(?:WorkingDirectory|Environment)=(.*)$", text, re.M) * as_root
    return [*commands, *(path.read_text() for path in scripts if path.is_file()), *places]


@pytest.mark.parametrize("name", UNITS)
def test_a_command_of_root_names_nothing_that_ray_may_write(name: str, trees: list[Path]) -> None:
    places = [(tree / "etc/systemd/system" / name, tree) for tree in trees]
    for unit, tree in (place for place in places if place[0].exists()):
        for command in commands_of_root(unit, tree):
            assert not RAYS.search(command), command


@pytest.mark.parametrize("name", UNITS)
def test_roots_python_reads_none_of_the_users_variables(name: str, trees: list[Path]) -> None:
    places = [(tree / "etc/systemd/system" / name, tree) for tree in trees]
    for unit, tree in (place for place in places if place[0].exists()):
        if "user.env" in unit.read_text():
            for command in commands_of_root(unit, tree):
                for python in re.findall(r"^\W*/usr/bin/python3 .*|^ *python3 .*", command, re.M):
                    assert "python3 -E " in python


@pytest.mark.parametrize("script", ["install_head.sh", "start_training.sh"])
def test_a_run_command_is_not_root_where_it_uses_the_python_environment(script: str) -> None:
    text = (BOOT / script).read_text().replace("\\\n", "")
    for line in text.splitlines():
        if "/opt/volley/venv/bin" in line:
            assert "runuser --user ray -- " in line
