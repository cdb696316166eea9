"""A machine's files below a folder: those of customData, and the head software's units."""

from __future__ import annotations

import gzip
import shutil
from base64 import b64decode
from pathlib import Path
from typing import Any

import yaml

from infra import ports
from infra.boot.cloud_config import MachineEnvironment, Role, cloud_config
from infra.boot.head_wheel import UNITS

ROLES: list[Role] = ["head", "worker"]


def machine(role: Role = "head", **changes: Any) -> MachineEnvironment:
    values: dict[str, Any] = {
        "role": role,
        "ray_start_flags": ports.head_flags("10.42.0.4"),
        "results_account": "account",
        "results_container": "results",
        "token_container": "token",
        "environment_container": "environments",
        "identity_client_id": "client",
        "mlflow_client_id": "mlflow" if role == "head" else "",
        "mlflow_tracking_uri": "http://127.0.0.1:5000",
    }
    return MachineEnvironment(**{**values, **changes})


def write_tree(environment: MachineEnvironment, folder: Path) -> Path:
    for file in yaml.safe_load(cloud_config(environment))["write_files"]:
        path = folder / file["path"].lstrip("/")
        content = decoded(file)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(int(file.get("permissions", "0644"), 8))
    if environment.role == "head":
        # The head's run command brings them.
        shutil.copytree(UNITS, folder / "etc/systemd/system", dirs_exist_ok=True)
    return folder


def decoded(file: dict[str, Any]) -> bytes:
    """Returns the content of a file of write_files."""
    content: str = file["content"]
    match file.get("encoding"):
        case "gz+b64":
            return gzip.decompress(b64decode(content))
        case _:
            return content.encode()
