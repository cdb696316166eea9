"""The payload's code: run commands that put it on the head, where the training's finds it.

One run command is too small for the payload, so each brings a part.
"""

import bz2
import hashlib

import pulumi

from infra.stack.head import Head
from infra.stack.naming import Naming
from infra.stack.run_command import PAYLOAD, run_command_on_head
from infra.stack.run_command_script import script_with_files

FOLDER = "/usr/local/lib/volley/payloads"
PART_BYTES = 60_000
"""Of the compressed payload; as text it takes a quarter more."""
TIMEOUT_S = 60
INSTALL = """\
folder={folder}
install --directory "$folder"
install --mode 0644 "$incoming/part" "$folder/.{part}"
mv "$folder/.{part}" "$folder/{part}"
find "$folder" -type f ! -name '*{digest}*' -delete
"""


class PayloadCode(pulumi.ComponentResource):
    """Sends the payload's code to the head, and again when it changes."""

    def __init__(
        self, naming: Naming, head: Head, payload: bytes, after: list[pulumi.Resource]
    ) -> None:
        super().__init__(
            "volley:infra:PayloadCode", naming.name("payload-code"), opts=naming.in_cluster
        )
        self.run_commands: list[pulumi.Resource] = [
            run_command_on_head(self, naming, head, f"{PAYLOAD}-{number}", script, TIMEOUT_S, after)
            for number, script in enumerate(install_scripts(payload), start=1)
        ]
        self.register_outputs({})


def install_scripts(payload: bytes) -> list[str]:
    """Returns the scripts of the run commands.

    Args:
        payload: The tar file of the payload's modules.
    """
    packed, name = bz2.compress(payload), digest(payload)
    parts = [packed[at : at + PART_BYTES] for at in range(0, len(packed), PART_BYTES)]
    return [
        script_with_files(
            {"part": part}, INSTALL.format(folder=FOLDER, part=f"{name}.{number}", digest=name)
        )
        for number, part in enumerate(parts, start=1)
    ]


def digest(payload: bytes) -> str:
    """Returns the name of this payload on the head, which the start of a training checks."""
    return hashlib.sha256(payload).hexdigest()[:16]
