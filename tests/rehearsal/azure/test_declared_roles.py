"""The machines' use of the results account needs exactly the roles that the stack declares."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from head import machine_token
from infra.boot.cloud_config import FILES
from infra.stack.identity import BLOB_DATA_CONTRIBUTOR
from infra.stack.results_account import CONTAINER
from rehearsal.addresses import BLOB_ADDRESS, METADATA_ADDRESS
from rehearsal.azure.blob.blob_storage import PROGRAM
from rehearsal.azure.resources.roles import RoleAssignment, role_assignments
from rehearsal.host_plan import plan
from tests.infra.boot.boot_scripts import SCRIPTS
from tests.infra.declared_stack import Declared, declare_stack
from tests.rehearsal.network_namespaces import needs
from tests.rehearsal.private_network import run_python

pytestmark = [
    *needs("mount", "unshare"),
    pytest.mark.skipif(not PROGRAM.exists(), reason=f"Azurite is not installed: no {PROGRAM}"),
]

READER = "2a2b9908-6ea1-4ae2-8e65-a410df84e7d1"
SERVE = """
import json, os, subprocess, sys
from pathlib import Path
from rehearsal.azure.metadata import metadata_service, metadata_state
from rehearsal.azure.blob.blob_proxy import Access
from rehearsal.azure.blob.blob_storage import BlobStorage
from rehearsal.azure.resources.roles import RoleAssignment

given = json.loads(Path(sys.argv[1]).read_text())
folder = Path(sys.argv[1]).parent
state = folder / "metadata.json"
identities = {"client": metadata_state.Identity(given["principal"])}
machine = metadata_state.Instance("m", "10.0.0.5", "", "", "", identities=identities)
metadata_state.put_instance(state, machine)
metadata_service.start(state, folder / "log")
storage = BlobStorage(folder / "blobs")
storage.add_account(given["account"])
for container in given["containers"]:
    storage.create_container(given["account"], container)
(folder / "file").write_text("content")
environment = os.environ | {
    "AZURE_CLIENT_ID": "client",
    "RESULTS_ACCOUNT": given["account"],
    "SSL_CERT_FILE": str(storage.ca_certificate),
}

def attempt(verb, container, assignments):
    roles = tuple(RoleAssignment(**values) for values in assignments)
    storage.grant(Access({given["account"]: given["account_id"]}, roles))
    command = [sys.executable, given["blob"], verb, container, "ray-token", folder / "file"]
    pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, env=environment, **pipe) as program:
        # Without a role the program retries for long.
        # The metadata service is not ready at first.
        answers = (line for line in program.stdout if "ray-token: " in line)
        answer = next(line for line in answers if "Error 410" not in line and "429" not in line)
        program.kill()
    return answer

for verb, container, assignments in given["attempts"]:
    print(json.dumps(attempt(verb, container, assignments)), flush=True)
storage.stop()
"""
DONE, REFUSED = "done", "AuthorizationPermissionMismatch"


@pytest.fixture(scope="module")
def declared() -> Declared:
    return declare_stack()


def narrower(assignment: RoleAssignment) -> RoleAssignment:
    """Returns an assignment that only reads; a reader's moves to another container."""
    if assignment.role == READER:
        return replace(assignment, scope=f"{assignment.scope}-other")
    return replace(assignment, role=READER)


def attempts_of(
    declared: Declared, folder: Path, who: str, attempts: list[tuple[str, str, Any]]
) -> list[str]:
    """Runs the machines' blob program once per list of assignments; returns its outcomes."""
    shutil.copy(str(machine_token.__file__), folder)
    ((account, planned),) = plan(declared.azure).accounts.items()
    given = {
        "principal": declared.resource("UserAssignedIdentity", who).added["principalId"],
        "account": account,
        "account_id": planned.resource_id,
        "containers": planned.containers,
        "blob": shutil.copy(FILES / "common" / SCRIPTS / "blob.py", folder),
        "attempts": [
            (verb, container, [asdict(assignment) for assignment in assignments])
            for verb, container, assignments in attempts
        ],
    }
    file = folder / "given.json"
    file.write_text(json.dumps(given))
    output = run_python(
        SERVE,
        file,
        machine="10.0.0.5",
        names={f"{account}.blob.core.windows.net": BLOB_ADDRESS},
        addresses=[METADATA_ADDRESS, BLOB_ADDRESS],
        hosts=folder / "hosts",
    )
    return [json.loads(line) for line in output.splitlines()]


@pytest.mark.parametrize(
    ("role", "verb"),
    [
        ("head-results", "put"),
        ("head-token", "put"),
        ("workers-token", "get"),
        ("head-environments", "put"),
        ("workers-environments", "get"),
    ],
)
def test_without_a_role_or_with_less_of_it_a_machine_is_refused(
    declared: Declared, tmp_path: Path, role: str, verb: str
) -> None:
    everyone = [replace(assignment, effective=0) for assignment in role_assignments(declared.azure)]
    who, what = role.split("-")
    inputs = declared.one("RoleAssignment", role)
    (mine,) = (
        assignment
        for assignment in everyone
        if (assignment.principal_id, assignment.scope) == (inputs["principalId"], inputs["scope"])
    )
    others = [assignment for assignment in everyone if assignment != mine]
    container = mine.scope.rpartition("/")[2]
    assert container.startswith(what)
    first = (
        [("put", container, [replace(mine, role=BLOB_DATA_CONTRIBUTOR)])] if verb == "get" else []
    )
    *_, given, removed, narrowed = attempts_of(
        declared,
        tmp_path,
        who,
        [
            *first,
            (verb, container, everyone),
            (verb, container, others),
            (verb, container, [*others, narrower(mine)]),
        ],
    )
    assert DONE in given
    assert REFUSED in removed
    assert REFUSED in narrowed


def test_workers_may_write_nothing_and_not_read_the_results(
    declared: Declared, tmp_path: Path
) -> None:
    everyone = [replace(assignment, effective=0) for assignment in role_assignments(declared.azure)]
    ((_, account),) = plan(declared.azure).accounts.items()
    attempts = [
        ("get" if name == CONTAINER else "put", name, everyone) for name in account.containers
    ]
    answers = attempts_of(declared, tmp_path, "workers", attempts)
    assert [REFUSED in answer for answer in answers] == [True, True, True]
