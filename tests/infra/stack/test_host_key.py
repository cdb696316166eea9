"""The stack has the head's host key, which the run command of the head's software prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from rehearsal.azure.resources.azure_stand_in import Azure
from rehearsal.azure.resources.resource_kinds import Resource
from rehearsal.azure.resources.run_commands import Execution
from rehearsal.drivers.in_process import InProcess
from tests.infra.declared_stack import REQUIRED

pytestmark = pytest.mark.slow

TYPE = "ssh-ed25519"


class WithKeys(Azure):
    """An Azure in which each VM has a host key of its own, made of the VM's id."""

    def outcome(self, vm: Resource, execution_id: str) -> Execution | None:
        key = vm.added["vmId"].replace("-", "")
        return Execution(output=f"volley: ready\nhost key: {TYPE} {key}\n1 to 4 workers\n")


def test_the_outputs_accept_the_key_of_the_present_head_alone(tmp_path: Path) -> None:
    driver = InProcess(WithKeys(tmp_path / "azure.json"))
    keys = []
    for config in ({}, {}, {"maxWorkers": "7"}, {"adminUsername": "another"}):
        outputs = driver.up({**REQUIRED, **config}).outputs
        key = f"{TYPE} {outputs['headVmId'].replace('-', '')}"
        keys.append(key)
        assert outputs["headHostKey"] == key
        for name in ("ssh", "tunnel", "dashboardToken"):
            assert f'"KnownHostsCommand=/usr/bin/env echo %H {key}"' in outputs[name]
            assert "-o StrictHostKeyChecking=yes" in outputs[name]
    # A head with another administrator is another VM.
    assert keys[0] == keys[1] == keys[2] != keys[3]


def test_without_a_key_in_the_output_ssh_asks_as_it_always_does(tmp_path: Path) -> None:
    outputs = InProcess(Azure(tmp_path / "azure.json")).up(REQUIRED).outputs
    assert outputs["headHostKey"] == ""
    assert outputs["ssh"].startswith("ssh volley@")
