"""The machines get the repository's lock file, whoever runs `pulumi up`."""

from __future__ import annotations

import base64
import gzip
import zlib
from pathlib import Path

import pytest
import yaml

from infra.boot.cloud_config import REQUIREMENTS, cloud_config
from infra.boot.head_wheel import JUPYTER_LOCK
from infra.boot.machine_lock import main, pack
from infra.config.read_stack import read_settings
from infra.stack.machine_environment import LONGEST, worker_environment
from tests.infra.declared_stack import REQUIRED
from tests.project import ROOT

LOCK, PACKED = REQUIREMENTS / "machine.txt", REQUIREMENTS / "machine.txt.gz"


def test_the_packed_lock_is_the_lock() -> None:
    assert gzip.decompress(PACKED.read_bytes()) == LOCK.read_bytes()


def test_machines_get_the_same_lock_from_every_laptop(monkeypatch: pytest.MonkeyPatch) -> None:
    # Another zlib compresses to other bytes.
    monkeypatch.setattr(gzip, "compress", lambda data, **_: zlib.compress(data, 1, wbits=31))
    machine = worker_environment(read_settings(REQUIRED, ROOT), LONGEST)
    files = yaml.safe_load(cloud_config(machine))["write_files"]
    (file,) = [file for file in files if file["path"] == "/etc/volley/requirements.txt"]
    assert base64.b64decode(file["content"]) == PACKED.read_bytes()


def test_a_lock_that_is_packed_already_stays_as_it_is(tmp_path: Path) -> None:
    packed = tmp_path / "machine.txt.gz"
    packed.write_bytes(gzip.compress(b"ray==2.60.0\n", compresslevel=1))
    before = packed.read_bytes()
    pack("ray==2.60.0\n", packed)
    assert packed.read_bytes() == before
    pack("ray==2.61.0\n", packed)
    assert gzip.decompress(packed.read_bytes()) == b"ray==2.61.0\n"


def names(lock: Path) -> set[str]:
    return {line.partition("==")[0] for line in lock.read_text().splitlines()}


def test_jupyterlab_brings_no_package_that_machines_have_in_another_version() -> None:
    assert {"jupyterlab", "ipykernel"} <= names(JUPYTER_LOCK)
    assert names(JUPYTER_LOCK).isdisjoint(names(LOCK))


def test_a_lock_leaves_out_what_machines_have_in_the_same_version(tmp_path: Path) -> None:
    pylock, lock, machine = (tmp_path / name for name in ("pylock.toml", "own.txt", "machine.txt"))
    pylock.write_text(
        "".join(
            f"[[packages]]\nname = '{name}'\nversion = '{version}'\n"
            f"[[packages.wheels]]\nname = '{name}-{version}-py3-none-any.whl'\n"
            f"hashes = {{ sha256 = '{name}{version}' }}\n"
            for name, version in [("old", "1"), ("new", "2"), ("changed", "3")]
        )
    )
    machine.write_text("old==1 --hash=sha256:old1\nchanged==2 --hash=sha256:changed2\n")
    main(pylock, lock, machine)
    assert lock.read_text() == "new==2 --hash=sha256:new2\nchanged==3 --hash=sha256:changed3\n"
    assert not lock.with_name("own.txt.gz").exists()
