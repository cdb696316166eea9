"""The machines get the repository's lock file, whoever runs `pulumi up`."""

from __future__ import annotations

import base64
import gzip
import zlib
from pathlib import Path

import pytest
import yaml

from infra.boot.cloud_config import REQUIREMENTS, cloud_config
from infra.boot.machine_lock import pack
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
