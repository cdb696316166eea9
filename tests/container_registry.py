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
from rehearsal.host_shell import run
from rehearsal.registry import Registry, debian_layer, layer
from rehearsal.set_up.tools import has_registry
from tests.free_port import free_port

PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
DEBIAN_HAS_PYTHON = (BASE / "usr/bin" / PYTHON).exists()
"""Whether the image's own Python is the one of these tests; otherwise theirs is added to it."""
MAZE = (
    "/usr/lib/python3/dist-packages/maze.py"
    if DEBIAN_HAS_PYTHON
    else f"/usr/local/lib/{PYTHON}/site-packages/maze.py"
)
REGISTRIES = '[[registry]]\nlocation = "127.0.0.1:{port}"\ninsecure = true\n'


def why_not() -> str:
    """Returns the reason why this machine cannot run containers, or ""."""
    missing = [program for program in ("skopeo", "umoci") if shutil.which(program) is None]
    if missing:
        return f"{', '.join(missing)} is not installed"
    if os.geteuid() != 0 or not (has_registry() and BASE.is_dir()):
        return "`make rehearse-set-up` has not been run, or the tests do not run as root"
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
            module = {MAZE.lstrip("/"): b"SIZE = 7\n"}
            layers = [debian_layer(folder / "debian.tar"), layer(folder / "maze.tar", module)]
            if not DEBIAN_HAS_PYTHON:
                layers.append(python_layer(folder / "python.tar"))
            yield Images(registry, registry.push("team/maze:1", layers, {"MAZE": "two walls"}))
        finally:
            registry.stop()


def python_layer(file: Path) -> Path:
    """Writes the Python of these tests as a layer, without its packages."""
    prefix = Path(sys.base_prefix)
    moved = ["--exclude=site-packages", "--exclude=test", "--transform=s,^,usr/local/,"]
    run("tar", f"--directory={prefix}", *moved, "-cf", file, f"bin/{PYTHON}", f"lib/{PYTHON}")
    shared = prefix.glob(f"lib/lib{PYTHON}.so*")
    more = {f"usr/lib/{library.name}": library.read_bytes() for library in shared}
    links = layer(file.with_suffix(".more"), {**more, "usr/local/bin/python3": PYTHON})
    run("tar", "--concatenate", "-f", file, links)
    return file
