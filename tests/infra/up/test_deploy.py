"""`make up` and `make down`, with locks and the state that a killed run leaves."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infra.error_codes import WORKERS_HAVE_CHANGED
from infra.up.deploy import main, subscription_of
from infra.up.pending_operations import (
    AZURE_NATIVE,
    pending_operations,
    with_declared_inputs,
    without_pending,
)
from infra.up.pulumi_run import LOCK, is_dead

GROUP_URN = f"urn:pulumi:dev::volley::{AZURE_NATIVE}resources:ResourceGroup::volley-dev"
VM_URN = f"urn:pulumi:dev::volley::volley:infra:Head${AZURE_NATIVE}compute:VirtualMachine::head"
VM_ID = "/subscriptions/one/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/head"


def resource(urn: str, inputs: dict[str, Any], resource_id: str = "") -> dict[str, Any]:
    known = {"urn": urn, "type": urn.split("::")[2].rpartition("$")[2], "inputs": inputs}
    return {**known, "id": resource_id} if resource_id else known


GROUP = resource(GROUP_URN, {"resourceGroupName": "g"}, "/subscriptions/one/resourceGroups/g")
VM = resource(VM_URN, {"resourceGroupName": "g", "vmName": "head"})


def state(*pending: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    operations = [{"type": kind, "resource": what} for kind, what in pending]
    return {"version": 3, "deployment": {"resources": [GROUP], "pending_operations": operations}}


@pytest.mark.parametrize("arguments", [[], ["upp"], ["--yes"]])
def test_what_is_not_a_command_is_refused_in_one_line(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().err.endswith("must be up or destroy\n")


def test_without_pulumi_it_is_said_where_to_get_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    assert main(["up"]) == 2
    assert "pulumi is not on the PATH. To install it: https://" in capsys.readouterr().err


def test_what_was_being_created_is_looked_for_under_its_id() -> None:
    corrected, urns = without_pending(state(("creating", VM)), "one")
    assert corrected["deployment"]["resources"] == [GROUP, {**VM, "id": VM_ID, "outputs": {}}]
    assert urns == [VM_URN]


@pytest.mark.parametrize("operation", ["updating", "deleting", "reading"])
def test_what_existed_already_is_asked_for_again(operation: str) -> None:
    corrected, urns = without_pending(state((operation, GROUP)), "one")
    assert corrected["deployment"]["resources"] == [GROUP]
    assert urns == [GROUP_URN]


def test_nothing_is_pending_afterwards() -> None:
    corrected, _ = without_pending(state(("creating", VM), ("updating", GROUP)), "one")
    assert pending_operations(corrected) == []


def test_what_azure_adds_is_not_input_of_what_was_being_created() -> None:
    found = {**VM, "id": VM_ID, "inputs": {**VM["inputs"], "added": 1}, "outputs": {"added": 1}}
    refreshed = {"version": 3, "deployment": {"resources": [GROUP, found]}}
    pending = pending_operations(state(("creating", VM), ("updating", GROUP)))
    corrected = with_declared_inputs(refreshed, pending)
    assert corrected["deployment"]["resources"] == [GROUP, {**found, "inputs": VM["inputs"]}]


def test_what_is_not_azures_is_made_again() -> None:
    component = resource("urn:pulumi:dev::volley::pulumi:providers:azure-native::default", {})
    corrected, urns = without_pending(state(("creating", component)), "one")
    assert (corrected["deployment"]["resources"], urns) == ([GROUP], [])


def test_the_state_that_was_read_is_not_changed() -> None:
    before = state(("creating", VM))
    without_pending(before, "one")
    assert before == state(("creating", VM))


def test_the_subscription_is_that_of_the_stacks_resources() -> None:
    assert subscription_of(state()) == "one"


def test_a_lock_says_who_has_made_it() -> None:
    told = "  file:///s/.pulumi/locks/a.json: created by me@laptop (pid 4242) at 2026-11-23"
    (lock,) = LOCK.finditer(told)
    assert (lock["host"], lock["pid"]) == ("laptop", "4242")


def test_nobody_knows_of_a_process_of_another_host() -> None:
    assert not is_dead(f"not-{socket.gethostname()}", 2**22)


@pytest.mark.slow
def test_a_process_that_is_not_pulumi_holds_no_lock() -> None:
    assert is_dead(socket.gethostname(), os.getpid())


@pytest.mark.slow
def test_a_pulumi_that_runs_holds_its_lock(tmp_path: Path) -> None:
    program = shutil.copy("/bin/sleep", tmp_path / "pulumi")
    with subprocess.Popen([program, "60"]) as running:
        try:
            assert not is_dead(socket.gethostname(), running.pid)
        finally:
            running.kill()


@pytest.mark.slow
def test_a_killed_pulumi_holds_no_lock_though_nobody_has_waited_for_it(tmp_path: Path) -> None:
    program = shutil.copy("/bin/sleep", tmp_path / "pulumi")
    with subprocess.Popen([program, "60"]) as killed:
        killed.kill()
        os.waitid(os.P_PID, killed.pid, os.WEXITED | os.WNOWAIT)  # It remains a zombie.
        assert is_dead(socket.gethostname(), killed.pid)


PULUMI = """\
#!/bin/bash
echo "$PULUMI_STACK $ARM_SUBSCRIPTION_ID $*" >> {folder}/all-calls
[[ $* != "stack export" || ! -e {folder}/state.json ]] || exec cat {folder}/state.json
[[ $* != "stack export" ]] || {{ cat {folder}/export-error >&2; exit 255; }}
[[ $* != "config get resultsAccountId" ]] || exec cat {folder}/results-account-id
[[ $1 == up ]] || exit 1
echo "$*" >> {folder}/calls
if [[ $(wc -l < {folder}/calls) -le {failures} ]]; then
  echo '{{"diagnosticEvent": {{"message": "{error}"}}}}' > "${{@: -1}}"
  exit 255
fi
"""


@pytest.fixture
def pulumi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int], Path]:
    """A stub of pulumi that fails at first and records its calls."""

    monkeypatch.delenv("PULUMI_STACK", raising=False)
    monkeypatch.delenv("ARM_SUBSCRIPTION_ID", raising=False)

    def make(error: str, failures: int) -> Path:
        program = tmp_path / "pulumi"
        (tmp_path / "export-error").write_text("error: no stack selected\n")
        program.write_text(PULUMI.format(folder=tmp_path, error=error, failures=failures))
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        return tmp_path / "calls"

    return make


@pytest.mark.slow
def test_nothing_runs_while_the_stacks_state_cannot_be_read(
    pulumi: Callable[[str, int], Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    calls = pulumi("", 0)
    (tmp_path / "export-error").write_text("error: lookup api.pulumi.com: no such host\n")
    assert main(["up"]) == 255
    assert not calls.exists()
    assert capfd.readouterr().err == "error: lookup api.pulumi.com: no such host\n"


@pytest.mark.slow
def test_what_needs_time_is_said_and_tried_again_without_asking(
    pulumi: Callable[[str, int], Path], capfd: pytest.CaptureFixture[str]
) -> None:
    calls = pulumi('Status=400 Code=\\"InUseSubnetCannotBeDeleted\\"', 2)
    assert main(["up"], pause_s=0.01) == 0
    first, *later = calls.read_text().splitlines()
    assert "--yes" not in first
    assert len(later) == 2
    assert all("--yes --skip-preview" in call for call in later)
    assert "Waiting for Azure (network interfaces of deleted" in capfd.readouterr().out


@pytest.mark.slow
def test_what_does_not_end_by_itself_is_not_tried_again(
    pulumi: Callable[[str, int], Path],
) -> None:
    calls = pulumi("QuotaExceeded", 1)
    assert main(["up"], pause_s=0.01) == 255
    assert len(calls.read_text().splitlines()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("option", [["--stack", "prod"], ["--stack=prod"], ["-sprod"]])
def test_each_call_is_about_the_stack_that_an_option_names(
    pulumi: Callable[[str, int], Path], tmp_path: Path, option: list[str]
) -> None:
    pulumi("", 0)
    assert main(["up", "--yes", *option]) == 0
    calls = (tmp_path / "all-calls").read_text().splitlines()
    assert len(calls) > 1
    assert all(call.startswith("prod ") for call in calls)


@pytest.mark.slow
def test_what_only_a_preview_has_refused_is_not_approved(
    pulumi: Callable[[str, int], Path],
) -> None:
    calls = pulumi(WORKERS_HAVE_CHANGED, 1)
    assert main(["up"], pause_s=0.01) == 0
    assert [" --yes" in call for call in calls.read_text().splitlines()] == [False, False]


ACCOUNT = "/subscriptions/two/resourceGroups/r/providers/Microsoft.Storage/storageAccounts/results"
ACCOUNT_URN = f"urn:pulumi:dev::volley::{AZURE_NATIVE}storage:StorageAccount::results"


@pytest.mark.slow
def test_pulumi_works_in_the_subscription_of_the_machines(
    pulumi: Callable[[str, int], Path], tmp_path: Path
) -> None:
    pulumi("", 0)
    resources = [resource(ACCOUNT_URN, {}, ACCOUNT), resource(VM_URN, {}, VM_ID)]
    (tmp_path / "state.json").write_text(json.dumps({"deployment": {"resources": resources}}))
    (tmp_path / "results-account-id").touch()
    assert main(["up"]) == 0
    assert " one up" in (tmp_path / "all-calls").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(("kept", "exit_code"), [(False, 2), (True, 0)])
def test_results_that_an_up_would_delete_are_not_touched(
    pulumi: Callable[[str, int], Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    kept: bool,
    exit_code: int,
) -> None:
    calls = pulumi("", 0)
    account = {**resource(ACCOUNT_URN, {}, ACCOUNT), "retainOnDelete": kept}
    (tmp_path / "state.json").write_text(json.dumps({"deployment": {"resources": [account]}}))
    (tmp_path / "results-account-id").write_text(f"{ACCOUNT.upper()}\n")
    assert main(["up"]) == exit_code
    assert calls.exists() == (exit_code == 0)
    assert ("up would delete it" in capsys.readouterr().err) == (exit_code == 2)
