"""A stand-in for a channel of conda: a folder of small packages, indexed as a server's is."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow
from rattler import Subdir
from rattler.index import index_fs

from tests.local_server import local_server

PLACEHOLDER = "/the/prefix/of/the/machine/that/built/it/" + "x" * 100
"""An installer replaces it by the prefix."""
HERE = str(Subdir.current())


@dataclass(frozen=True)
class Package:
    """A package with text files."""

    name: str
    version: str
    files: dict[str, str]
    depends: list[str] = field(default_factory=list)
    noarch: str | None = None
    """"python" for a Python package of any platform, "generic" for data."""
    programs: list[str] = field(default_factory=list)
    """Programs of a Python package: hello = module:function."""

    def members(self) -> dict[str, bytes]:
        """Returns the files of the archive."""
        index = {
            "name": self.name,
            "version": self.version,
            "build": "0",
            "build_number": 0,
            "depends": self.depends,
            "subdir": "noarch" if self.noarch else HERE,
            **({"noarch": self.noarch} if self.noarch else {}),
        }
        paths = [_path(name, text) for name, text in self.files.items()]
        members: dict[str, object] = {
            "info/index.json": index,
            "info/paths.json": {"paths": paths, "paths_version": 1},
        }
        if self.noarch == "python":
            noarch = {"type": "python", "entry_points": self.programs}
            members["info/link.json"] = {"noarch": noarch, "package_metadata_version": 1}
        info = {name: json.dumps(value).encode() for name, value in members.items()}
        return {**info, **{name: text.encode() for name, text in self.files.items()}}


def _path(name: str, text: str) -> dict[str, object]:
    path: dict[str, object] = {
        "_path": name,
        "path_type": "hardlink",
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
        "size_in_bytes": len(text),
    }
    if PLACEHOLDER in text:
        path |= {"prefix_placeholder": PLACEHOLDER, "file_mode": "text"}
    return path


PACKAGES = [
    Package(
        "greeter",
        "1.2",
        {"bin/greet": f'#!/bin/sh\necho hello $(cat "{PLACEHOLDER}/share/whom.txt")\n'},
        ["greeter-data >=2"],
    ),
    Package("greeter-data", "2.0", {"share/whom.txt": "world"}, noarch="generic"),
    Package(
        "greeter-home",
        "1.0",
        {"etc/conda/activate.d/greeter.sh": 'echo noise; export GREETER_HOME="$CONDA_PREFIX/x"\n'},
    ),
    Package(
        "greetlib",
        "1.5",
        {"site-packages/greetlib.py": "import sys\n\ndef main():\n    print(sys.prefix)\n"},
        ["python >=3.9", "numpy >=1.2"],
        noarch="python",
        programs=["greet-lib = greetlib:main"],
    ),
    # As conda's own, it would hide the numpy that trains.
    Package("other-numpy", "9.0", {"site-packages/numpy.py": ""}, ["python"], noarch="python"),
    Package("needs-old-numpy", "1.0", {}, ["python", "numpy <1.20"], noarch="python"),
    Package("needs-python-2", "1.0", {}, ["python 2.7.*"], noarch="python"),
    Package("numpy", "1.19", {"site-packages/numpy.py": ""}, ["python"], noarch="python"),
    Package("cowsay", "5.0", {"site-packages/cowsay.py": ""}, ["python"], noarch="python"),
]


def write_channel(folder: Path) -> str:
    """Writes a channel with PACKAGES; returns its URL. greeter is a .conda file."""
    for package in PACKAGES:
        place = folder / ("noarch" if package.noarch else HERE)
        place.mkdir(parents=True, exist_ok=True)
        stem, members = f"{package.name}-{package.version}-0", package.members()
        if package.name != "greeter":
            (place / f"{stem}.tar.bz2").write_bytes(_tar(members, "w:bz2"))
            continue
        info = {name: content for name, content in members.items() if name.startswith("info/")}
        rest = {name: content for name, content in members.items() if name not in info}
        with zipfile.ZipFile(place / f"{stem}.conda", "w") as archive:
            archive.writestr("metadata.json", '{"conda_pkg_format_version": 2}')
            for kind, content in (("pkg", rest), ("info", info)):
                packed = pyarrow.compress(_tar(content, "w:"), codec="zstd", asbytes=True)
                archive.writestr(f"{kind}-{stem}.tar.zst", packed)
    asyncio.run(index_fs(folder))
    return folder.as_uri()


@contextmanager
def served(channel: Path, status: int = 200) -> Iterator[str]:
    """Serves a channel where the status is 200, else answers everything with the status."""

    def answer(path: str, _: object) -> tuple[int, str, bytes]:
        file = channel / path.lstrip("/")
        if status != 200 or not file.is_file():
            return status if status != 200 else 404, "text/plain", b""
        return 200, "application/octet-stream", file.read_bytes()

    with local_server(answer) as url:
        yield url


def _tar(members: dict[str, bytes], mode: str) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode=mode) as tar:  # type: ignore[call-overload]
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(content), 0o755 if name.startswith("bin/") else 0o644
            tar.addfile(info, io.BytesIO(content))
    return packed.getvalue()
