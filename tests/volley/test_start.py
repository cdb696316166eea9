"""`volley start` against the stand-in for management.azure.com, and `volley sleep`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rehearsal.azure.resources import roles
from rehearsal.azure.resources.virtual_machines import RUNS, power_state
from tests.free_port import free_port
from tests.local_server import json_server
from tests.rehearsal.azure.resources.scale_set_cloud import GROUP, HEAD, Cloud, cloud
from tests.volley.conftest import Laptop, outputs_of
from tests.volley.head import LocalHead, program
from volley.head_machine import credential, how_to_log_in

CLIENT = {"ARM_CLIENT_ID": "c", "ARM_CLIENT_SECRET": "s", "ARM_TENANT_ID": "t"}


@pytest.fixture
def azure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cloud]:
    """Azure with a sleeping head, which the laptop's login may start."""
    monkeypatch.setattr(roles, "ROLE_DELAY_S", -1)
    with cloud(tmp_path) as found:
        found.azure.deallocate(HEAD)
        monkeypatch.setenv("ARM_ENDPOINT", found.url)
        yield found


@pytest.fixture
def identity(azure: Cloud, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """A metadata service with the identity's tokens; its principal can be changed."""
    known = {"principal": ""}

    def token(*_: object) -> tuple[int, Any]:
        end = str(int(time.time()) + 86400)
        text = azure.token(known["principal"]) if known["principal"] else azure.token()
        found = {"access_token": text, "token_type": "Bearer", "resource": "r"}
        return 200, {**found, "expires_in": "86400", "expires_on": end}

    with json_server(token) as url:
        monkeypatch.setenv("ARM_USE_MSI", "true")
        monkeypatch.setenv("ARM_CLIENT_ID", "client")
        monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", url)
        yield known


@pytest.fixture
def asleep(laptop: Laptop, head: LocalHead) -> Laptop:
    """A laptop whose head is deallocated in Azure; a head on this machine answers SSH."""
    pages = {"mlflow": f"http://127.0.0.1:{free_port()}", "dashboard": ""}
    laptop.outputs(**outputs_of(head), **pages)
    return laptop


def runs(azure: Cloud) -> bool:
    return power_state(azure.azure.resources()[HEAD]) == RUNS


@pytest.mark.slow
@pytest.mark.usefixtures("identity")
def test_start_starts_the_head_and_says_what_continues(
    asleep: Laptop, head: LocalHead, azure: Cloud
) -> None:
    head.experiment("pong", order=1)
    head.experiment("next", "QUEUED", order=2)
    head.experiment("old", "FINISHED", order=0)
    with asleep.start("start") as process:
        out, err = process.communicate(timeout=100)
    assert process.returncode == 0, err
    assert out.splitlines() == [
        "The head has started.",
        "pong: TRAINING",
        "next: QUEUED, position 1",
    ]
    assert err.startswith("Azure is starting the head (0 s) ...")
    assert runs(azure)


@pytest.mark.slow
@pytest.mark.usefixtures("identity")
def test_a_head_that_boots_is_waited_for(asleep: Laptop, head: LocalHead) -> None:
    head.stop()
    with asleep.start("start") as process:
        assert process.stderr is not None
        while "The head is booting" not in (line := process.stderr.readline()):
            assert line
        head.start()
        out, _ = process.communicate(timeout=100)
    assert out.startswith("The head has started.\nNothing is queued. Next: volley submit")


@pytest.mark.slow
@pytest.mark.usefixtures("identity")
def test_start_of_a_head_that_runs_says_so(asleep: Laptop, azure: Cloud) -> None:
    azure.azure.start(HEAD)
    assert asleep.volley("start").startswith("The head is already running.\n")
    assert azure.count("POST") == 0
    found = json.loads(asleep.volley("start", "--json"))
    assert found == {"started": False, "experiments": []}


@pytest.mark.slow
@pytest.mark.usefixtures("identity")
def test_a_sleeping_cluster_is_known_by_azures_status(asleep: Laptop, head: LocalHead) -> None:
    head.stop()
    line = "The cluster is asleep. Next: volley start"
    assert asleep.volley("jupyter", code=2) == line
    mlflow = f"{line}, or volley ui --from-results for MLflow alone"
    assert asleep.volley("dashboard", code=2) == mlflow
    state = json.loads(asleep.volley("status", "--json"))
    assert (state["asleep"], state["experiments"]) == (True, [])
    assert asleep.volley("status").splitlines() == [
        line,
        "Its experiments cannot be listed: its results account is not known: add --results-account "
        "NAME. Next: az storage account list --query \"[?tags.project=='volley'].name\" -o tsv",
    ]


@pytest.mark.slow
@pytest.mark.usefixtures("identity")
def test_a_head_that_was_shut_down_from_inside_still_bills(
    asleep: Laptop, head: LocalHead, azure: Cloud
) -> None:
    head.stop()
    azure.azure.set_power(HEAD, "PowerState/stopped")
    line = "The head was shut down from inside, and Azure bills it as if it ran. Next: volley start"
    assert asleep.volley("jupyter", code=2) == line


@pytest.mark.slow
@pytest.mark.usefixtures("identity")
def test_a_head_that_runs_but_does_not_answer_is_told_apart(
    asleep: Laptop, head: LocalHead, azure: Cloud
) -> None:
    azure.azure.start(HEAD)
    head.stop()
    said = asleep.volley("status", code=2)
    assert "the head is running but does not answer (" in said
    assert "Next: pulumi config set adminCidr " in said
    assert said.endswith("&& volley up")


@pytest.mark.slow
@pytest.mark.usefixtures("identity")
def test_a_throttled_and_a_lost_answer_are_asked_for_again(asleep: Laptop, azure: Cloud) -> None:
    with azure.faults.changed() as faults:
        faults.throttled, faults.lost_answers = 1, 1
    with asleep.start("start") as process:
        process.communicate(timeout=100)
    assert process.returncode == 0
    assert runs(azure)


@pytest.mark.slow
@pytest.mark.usefixtures("identity")
@pytest.mark.parametrize("code", ["AllocationFailed", "SkuNotAvailable"])
def test_no_machine_at_azure_is_told(asleep: Laptop, azure: Cloud, code: str) -> None:
    with azure.faults.changed() as faults:
        faults.starts_sold_out, faults.sold_out_code = 1, code
    said = last_line(asleep)
    assert said == (
        f"volley: Azure has no capacity for the head's VM size now ({code}). "
        "Next: volley start, in some minutes"
    )
    assert not runs(azure)


@pytest.mark.slow
def test_a_login_without_the_role_is_told_which(asleep: Laptop, identity: dict[str, str]) -> None:
    identity["principal"] = "somebody"
    said = asleep.volley("start", code=2)
    assert said.startswith(
        "your Azure login may not start the head: The client 'somebody' does not have"
    )
    assert (
        f'types: az role assignment create --role "Virtual Machine Contributor" --scope {GROUP} '
        in (said)
    )


@pytest.mark.slow
@pytest.mark.usefixtures("azure")
def test_a_laptop_without_azs_login_is_told(asleep: Laptop) -> None:
    program(
        asleep.programs / "az",
        "echo \"ERROR: Please run 'az login' to setup account.\" >&2; exit 1",
    )
    said = asleep.volley("start", code=2)
    assert said.startswith("not logged in to Azure: ")
    assert said.endswith("Next: az login")


@pytest.mark.slow
def test_azs_login_is_that_of_the_heads_subscription(asleep: Laptop, azure: Cloud) -> None:
    token = json.dumps(
        {
            "accessToken": azure.token(),
            "expiresOn": "2099-01-01 00:00:00.000000",
            "tokenType": "Bearer",
        }
    )
    script = f"echo \"$*\" > {asleep.folder}/az-asked; echo '{token}'"
    program(asleep.programs / "az", script)
    with asleep.start("start") as process:
        process.communicate(timeout=100)
    assert process.returncode == 0
    asked = (asleep.folder / "az-asked").read_text()
    assert f"--subscription {HEAD.split('/')[2]}" in asked


@pytest.mark.slow
@pytest.mark.usefixtures("identity")
def test_a_head_that_was_destroyed_is_told(asleep: Laptop, head: LocalHead) -> None:
    asleep.outputs(**outputs_of(head, headId=f"{HEAD}2"))
    said = asleep.volley("start", code=2)
    assert said.startswith("the head does not exist in Azure: ")
    assert said.endswith("was not found. Next: volley up")


@pytest.mark.slow
@pytest.mark.usefixtures("identity")
def test_an_azure_that_does_not_answer_is_told(
    asleep: Laptop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARM_ENDPOINT", "http://127.0.0.1:9")
    said = asleep.volley("start", code=2)
    assert said.startswith("no answer from Azure: ")
    assert said.endswith("Next: volley start")


@pytest.mark.slow
@pytest.mark.usefixtures("identity")
def test_no_token_is_sent_without_tls(asleep: Laptop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARM_ENDPOINT", "http://management.example")
    said = asleep.volley("start", code=2)
    assert "http://management.example is not an https:// URL" in said


@pytest.mark.parametrize(
    ("environment", "kind", "next_command"),
    [
        ({"ARM_USE_MSI": "true", **CLIENT}, "ManagedIdentityCredential", "unset ARM_USE_MSI"),
        (CLIENT, "ClientSecretCredential", "correct ARM_CLIENT_ID"),
        ({"ARM_CLIENT_ID": "c"}, "AzureCliCredential", "az login"),
        ({}, "AzureCliCredential", "az login"),
    ],
)
def test_the_login_is_the_one_that_pulumi_takes(
    environment: dict[str, str], kind: str, next_command: str
) -> None:
    assert type(credential(environment, "0-1")).__name__ == kind
    assert how_to_log_in(environment).startswith(next_command)


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--now"]], ids=str)
def test_sleep_is_asked_of_the_head(connected: Laptop, head: LocalHead, options: list[str]) -> None:
    script = f'echo "$*" > {head.folder}/words; echo \'{{"sleeping": true}}\''
    program(head.folder / "programs" / "volley-head", script)
    said = connected.volley("sleep", *options)
    assert said == "The cluster saves its results and falls asleep. To wake it up: volley start\n"
    assert (head.folder / "words").read_text().split() == ["sleep", *options]


@pytest.mark.slow
def test_a_head_that_does_not_sleep_says_why(connected: Laptop, head: LocalHead) -> None:
    refusal = {"error": "pong is TRAINING.", "next": "volley sleep --now"}
    program(head.folder / "programs" / "volley-head", f"echo '{json.dumps(refusal)}'; exit 2")
    assert connected.volley("sleep", code=2) == "pong is TRAINING. Next: volley sleep --now"


def last_line(laptop: Laptop) -> str:
    """Returns the error message after the progress output."""
    with laptop.start("start") as process:
        _, err = process.communicate(timeout=100)
    assert process.returncode == 2, err
    return err.splitlines()[-1]
