"""The machines' own programs, with the Azure stand-in at Azure's real addresses and names."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from infra.boot.cloud_config import FILES
from rehearsal.addresses import BLOB_ADDRESS, METADATA_ADDRESS
from rehearsal.azure.blob.blob_storage import PROGRAM
from tests.rehearsal.network_namespaces import needs
from tests.rehearsal.private_network import run_python

pytestmark = needs("mount", "unshare")

START = """
import os, shutil, subprocess, sys, time
from pathlib import Path
from rehearsal.azure.metadata import metadata_service, metadata_state
from rehearsal.host_paths import ROOT

folder = Path(sys.argv[1])
scripts = Path(shutil.copytree(sys.argv[2], folder / "scripts"))
shutil.copy(ROOT / "head/machine_token.py", scripts)
blob = scripts / "blob.py"
state = folder / "metadata.json"
identities = {"client": metadata_state.Identity("principal")}
machine = metadata_state.Instance("worker", "10.0.0.5", "", "", "", identities=identities)
metadata_state.put_instance(state, machine)
metadata_service.start(state, folder / "log")
"""
WATCH_EVENTS = """
from azure.identity import ManagedIdentityCredential
token = ManagedIdentityCredential(client_id="client").get_token("https://storage.azure.com/.default")
event = metadata_state.ScheduledEvent("Preempt", ("worker",), time.time() + 30)
event_id = metadata_state.schedule(state, event)
with subprocess.Popen([sys.executable, "-m", "head.scheduled_events"]) as watching:
    end = time.monotonic() + 20
    while not metadata_state.acknowledged(state, event_id) and time.monotonic() < end:
        time.sleep(0.1)
    watching.kill()
print(token.token)
print(metadata_state.acknowledged(state, event_id))
"""
STORAGE = """
from infra.stack.identity import BLOB_DATA_CONTRIBUTOR
from rehearsal.azure.blob.blob_proxy import Access
from rehearsal.azure.resources.roles import RoleAssignment
from rehearsal.azure.blob.blob_storage import BlobStorage
storage = BlobStorage(folder / "blobs")
storage.add_account("results")
storage.create_container("results", "boot")
role = RoleAssignment("principal", BLOB_DATA_CONTRIBUTOR, "/account", 0)
storage.grant(Access({"results": "/account"}, (role,)))
environment = os.environ | {
    "AZURE_CLIENT_ID": "client",
    "RESULTS_ACCOUNT": "results",
    "SSL_CERT_FILE": str(storage.ca_certificate),
}
"""
PUT_AND_GET = """
for verb, file in (("put", folder / "sent"), ("get", folder / "received")):
    command = [sys.executable, blob, verb, "boot", "token", file]
    subprocess.run(command, env=environment, check=True, timeout=60)
print(storage.read("results", "boot", "token").decode())
storage.stop()
"""
SHARE_AND_TAKE = """
import hashlib
from infra.boot.head_wheel import UNITS
(folder / "venv").mkdir()
(folder / "venv/lock.sha256").write_text("lock")
archive = folder / "environment.tar.zst"
pack = ["tar", "--create", "--zstd", "--file", archive, "--directory", folder, "venv"]
subprocess.run(pack, check=True)
sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
(folder / "environment.sha256").write_text(sha256)
environment |= {"ENVIRONMENT_CONTAINER": "boot", "NAME": "name", "SHA256": sha256}
unit = (UNITS / "share-environment.service").read_text().replace("\\\\\\n", "")
for line in unit.splitlines():
    name, _, command = line.partition("=")
    command = command.replace("/opt/volley", str(folder))
    command = command.replace("/usr/local/lib/volley", str(scripts))
    if name.startswith("ExecStart"):
        subprocess.run(["sh", "-c", command], env=environment, check=True, timeout=60)
code = "import sys, take_environment as t; t.UNPACKER = 'nobody'; sys.exit(t.main(*sys.argv[1:]))"
take = [sys.executable, "-c", code, "name", folder / "taken"]
environment["PYTHONPATH"] = str(scripts)
print(subprocess.run(take, env=environment, check=False, timeout=60).returncode)
print(*storage.list("results", "boot"))
print(archive.exists())
storage.stop()
"""
needs_azurite = pytest.mark.skipif(
    not PROGRAM.exists(), reason=f"Azurite is not installed: no {PROGRAM}"
)


def run(code: str, folder: Path) -> list[str]:
    """Runs code on a machine of the stand-in; returns the lines that it prints."""
    return run_python(
        START + code,
        folder,
        FILES / "common/usr/local/lib/volley",
        machine="10.0.0.5",
        names={"results.blob.core.windows.net": BLOB_ADDRESS},
        addresses=[METADATA_ADDRESS, BLOB_ADDRESS],
        hosts=folder / "hosts",
    ).splitlines()


def test_an_eviction_stops_ray_and_is_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    systemctl = tmp_path / "systemctl"
    systemctl.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/stopped\n')
    systemctl.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("STOP_BEFORE_EVICTION", "ray.service")
    (tmp_path / "run").mkdir()
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(tmp_path / "run"))
    *_, token, acknowledged = run(WATCH_EVENTS, tmp_path)
    claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
    assert claims["oid"] == "principal"
    assert acknowledged == "True"
    assert (tmp_path / "stopped").read_text().splitlines()[0] == "stop ray.service"


@needs_azurite
def test_a_blob_is_put_and_read_by_the_machines_identity(tmp_path: Path) -> None:
    (tmp_path / "sent").write_text("a token")
    assert run(STORAGE + PUT_AND_GET, tmp_path)[-1] == "a token"
    assert (tmp_path / "received").read_text() == "a token"


@needs_azurite
def test_a_machine_takes_the_environment_that_the_head_has_shared(tmp_path: Path) -> None:
    *_, code, blobs, left = run(STORAGE + SHARE_AND_TAKE, tmp_path)
    assert code == "0"
    assert (tmp_path / "taken/venv/lock.sha256").read_text() == "lock"
    assert len(blobs.split()) == 2
    assert left == "False"
