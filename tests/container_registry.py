"""A registry on loopback that skopeo trusts, with an image of the rehearsal's Debian."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from rehearsal.host_paths import BASE
from rehearsal.registry import Registry, debian_layer, layer
from rehearsal.set_up.tools import has_registry
from tests.free_port import free_port

REGISTRIES = '[[registry]]\nlocation = "127.0.0.1:{port}"\ninsecure = true\n'


def why_not() -> str:
    """Returns the reason why this machine cannot run containers, or ""."""
    missing = [program for program in ("skopeo", "umoci") if shutil.which(program) is None]
    if missing:
        return f"{', '.join(missing)} is not installed"
    if os.geteuid() != 0 or not (has_registry() and BASE.is_dir()):
        return "`make rehearse-set-up` has not been run, or the tests do not run as root"
    python = f"python{sys.version_info.major}.{sys.version_info.minor}"
    if not (BASE / "usr/bin" / python).exists():
        return f"the rehearsal's Debian has another Python than this {python}"
    return ""


@dataclass(frozen=True)
class Images:
    registry: Registry
    maze: str
    """An image with Python, a module `maze` and the variable MAZE, by its digest."""


@contextmanager
def registry_with_images(folder: Path) -> Iterator[Images]:
    """Runs a registry; meanwhile this process and its children keep images below `folder`."""
    if reason := why_not():
        pytest.skip(reason)
    registry = Registry(folder, "127.0.0.1", free_port())
    trusted = folder / ".config/containers/registries.conf"
    trusted.parent.mkdir(parents=True)
    trusted.write_text(REGISTRIES.format(port=registry.port))
    registry.start()
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("HOME", str(folder))
        try:
            module = {"usr/lib/python3/dist-packages/maze.py": b"SIZE = 7\n"}
            layers = [debian_layer(folder / "debian.tar"), layer(folder / "maze.tar", module)]
            yield Images(registry, registry.push("team/maze:1", layers, {"MAZE": "two walls"}))
        finally:
            registry.stop()
