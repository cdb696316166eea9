"""The payload's lock for the cluster's machines only: small enough for customData.

`python -m infra.boot.machine_lock pylock.toml machine.txt` writes each package with its version
and the hashes of the wheels that fit Linux on x86-64 with the machines' Python; uv's own lock
carries those of every platform, 257 KB of them. Machines get its compressed copy, machine.txt.gz.

With a third file, a lock that machines have already, it writes the packages that are not in there:
jupyter.txt, which travels with the head's software.
"""

import gzip
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import parse_wheel_filename

from infra.boot.cloud_config import PYTHON_VERSION

GLIBC = 35
"""glibc 2.35, of Ubuntu 22.04: older manylinux wheels run there too."""


def main(pylock: Path, lock: Path, installed: Path | None = None) -> None:
    there = installed.read_text().splitlines(keepends=True) if installed else []
    resolved = lines(tomllib.loads(pylock.read_text()))
    text = "".join(line for line in resolved if line not in there)
    lock.write_text(text)
    if installed is None:
        pack(text, lock.with_name(f"{lock.name}.gz"))


def pack(text: str, packed: Path) -> None:
    """Compresses a lock into a file, unless it is there already.

    Another zlib gives other bytes for the same lock, and changed customData replaces every machine.
    """
    if not packed.exists() or gzip.decompress(packed.read_bytes()) != text.encode():
        packed.write_bytes(gzip.compress(text.encode(), mtime=0))


def lines(pylock: dict[str, Any]) -> Iterator[str]:
    """Yields the requirements with their hashes.

    Raises:
        ValueError: A package has no wheel for the machines.
    """
    fitting = machine_tags()
    for package in pylock["packages"]:
        hashes = [
            wheel["hashes"]["sha256"]
            for wheel in package.get("wheels", [])
            if fitting & parse_wheel_filename(wheel_name(wheel))[3]
        ]
        if not hashes:
            raise ValueError(f"{package['name']} {package['version']}: no wheel for Linux x86-64")
        options = " ".join(f"--hash=sha256:{sha256}" for sha256 in sorted(hashes))
        yield f"{package['name']}=={package['version']} {options}\n"


def wheel_name(wheel: dict[str, Any]) -> str:
    name: str = wheel.get("name") or wheel["url"].rpartition("/")[2]
    return name


def machine_tags() -> frozenset[Tag]:
    """Returns the tags of wheels that a machine can install."""
    version = tuple(int(part) for part in PYTHON_VERSION.split("."))
    platforms = [f"manylinux_2_{minor}_x86_64" for minor in range(GLIBC, 4, -1)]
    platforms += ["manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64"]
    platforms += ["linux_x86_64"]
    interpreter = f"cp{version[0]}{version[1]}"
    return frozenset(
        [
            *cpython_tags(version, platforms=platforms),
            *compatible_tags(version, interpreter=interpreter, platforms=platforms),
        ]
    )


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
