"""Laptops run Linux or macOS: every lock contains what such a machine needs.

Only a package index knows whether wheels exist for it: `make lock-check` asks one.
"""

from __future__ import annotations

import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from infra.boot.cloud_config import PYTHON_VERSION
from tests.project import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PYTHONS = [
    version
    for version in (f"3.{minor}" for minor in range(8, 30))
    if version in SpecifierSet(PROJECT["requires-python"])
]
LAPTOPS = [("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "arm64")]


def installed(extra: str, platform: tuple[str, str], python: str) -> list[str]:
    """Returns the names of the packages that a laptop installs from a lock."""
    environment = {
        "sys_platform": platform[0],
        "platform_system": platform[0].capitalize(),
        "platform_machine": platform[1],
        "python_version": python,
        "python_full_version": f"{python}.0",
    }
    text = (ROOT / f"requirements/{extra}.txt").read_text()
    pins = [Requirement(line) for line in re.findall(r"^(\w[^\\\n]*)", text, re.MULTILINE)]
    return [
        canonicalize_name(pin.name)
        for pin in pins
        if pin.marker is None or pin.marker.evaluate(environment)
    ]


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("platform", LAPTOPS, ids="-".join)
@pytest.mark.parametrize("extra", ["payload", "infra", "onnx"])
def test_every_laptop_gets_one_version_of_each_dependency(
    extra: str, platform: tuple[str, str], python: str
) -> None:
    names = installed(extra, platform, python)
    wanted = [Requirement(text).name for text in PROJECT["optional-dependencies"][extra]]
    assert {canonicalize_name(name) for name in wanted} <= set(names)
    assert len(names) == len(set(names))


def test_the_makefile_checks_the_locks_for_every_python() -> None:
    (pythons,) = re.findall(r"^PYTHONS := (.*)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert pythons.split() == PYTHONS


def test_machines_run_the_newest_python_that_every_lock_supports() -> None:
    assert PYTHONS[-1] == PYTHON_VERSION
    assert f"cluster's Python ({PYTHON_VERSION})" in (ROOT / "docs/containers.md").read_text()


def test_machines_install_no_library_that_bundles_an_ffmpeg_but_the_writer_of_videos() -> None:
    lock = (ROOT / "requirements/machine.txt").read_text()
    names = set(re.findall(r"^([\w.-]+)==", lock, re.MULTILINE))
    assert "av" in names
    assert not {name for name in names if name.startswith(("opencv", "imageio", "torchvision"))}
