"""What root runs, volley-head and the first workers' request run on Ubuntu 22.04's Python 3.10."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

import pytest

from head import __file__ as package
from tests.head.installed_head import InstalledHead
from tests.python_310 import PYTHON

OLDEST = (3, 10)
needs_python = pytest.mark.skipif(PYTHON is None, reason="no Python 3.10 is installed here")


@pytest.mark.parametrize("file", sorted(Path(package).parent.rglob("*.py")), ids=lambda p: p.name)
def test_the_package_is_written_for_its_python(file: Path) -> None:
    ast.parse(file.read_text(), feature_version=OLDEST)


@pytest.mark.slow
@needs_python
@pytest.mark.parametrize(
    "command", [["head.command", "status"], ["head.command", "logs", "--help"]]
)
def test_the_command_needs_the_standard_library_only(command: list[str], tmp_path: Path) -> None:
    head = InstalledHead(tmp_path)
    run = [str(PYTHON), "-S", "-m", *command]
    subprocess.run(run, cwd=tmp_path, env=head.environment, check=True, stdout=subprocess.DEVNULL)


@pytest.mark.slow
@needs_python
def test_what_runs_before_and_outside_the_environment_needs_the_standard_library_only(
    tmp_path: Path,
) -> None:
    head = InstalledHead(tmp_path)
    modules = (
        "autoscaler.first_workers",
        "identity.__main__",
        "identity.server",
        "scheduled_events",
        "sleep.__main__",
        "sleep.deallocation",
        "sleep.send_workers_home",
    )
    code = "".join(f"import head.{module}\n" for module in modules)
    run = [str(PYTHON), "-S", "-c", code]
    subprocess.run(run, cwd=tmp_path, env=head.environment, check=True)
