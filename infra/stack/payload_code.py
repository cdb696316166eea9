"""The payload's code: a run command that puts it on the head, where the training's finds it.

A run command is too small for the payload and an experiment's files together.
"""

import hashlib

import pulumi

from infra.stack.head import Head
from infra.stack.naming import Naming
from infra.stack.run_command import PAYLOAD, run_command_on_head
from infra.stack.run_command_script import script_with_files

FOLDER = "/usr/local/lib/volley/payloads"
TIMEOUT_S = 60
INSTALL = """\
folder={folder}
install --directory "$folder"
install --mode 0644 "$incoming/payload.tar" "$folder/.new"
mv "$folder/.new" "$folder/{digest}.tar"
find "$folder" -type f ! -name {digest}.tar -delete
"""


class PayloadCode(pulumi.ComponentResource):
    """Sends the payload's code to the head, and again when it changes."""

    def __init__(
        self, naming: Naming, head: Head, payload: bytes, after: list[pulumi.Resource]
    ) -> None:
        super().__init__("volley:infra:PayloadCode", naming.name("payload-code"))
        self.run_command = run_command_on_head(
            self, naming, head, PAYLOAD, install_script(payload), TIMEOUT_S, after
        )
        self.register_outputs({"runCommand": self.run_command.id})


def install_script(payload: bytes) -> str:
    """Returns the run command's script.

    Args:
        payload: The tar file of the payload's modules.

    Raises:
        ScriptTooLargeError: It is larger than a run command should be.
    """
    install = INSTALL.format(folder=FOLDER, digest=digest(payload))
    return script_with_files({"payload.tar": payload}, install)


def digest(payload: bytes) -> str:
    """Returns the name under which the head keeps this payload."""
    return hashlib.sha256(payload).hexdigest()[:16]
