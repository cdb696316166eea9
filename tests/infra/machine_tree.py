"""A machine's files as cloud-init writes them, below a folder."""

from __future__ import annotations

import gzip
from base64 import b64decode
from pathlib import Path
from typing import Any

import yaml

from infra import ports
from infra.boot.cloud_config import MachineEnvironment, Role, cloud_config

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
        "mlflow_tracking_uri": "http://127.0.0.1:5000",
    }
    return MachineEnvironment(**{**values, **changes})


def write_tree(environment: MachineEnvironment, folder: Path) -> Path:
    for file in yaml.safe_load(cloud_config(environment))["write_files"]:
        path = folder / file["path"].lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        packed = file.get("encoding") == "gz+b64"
        content = file["content"]
        path.write_bytes(gzip.decompress(b64decode(content)) if packed else content.encode())
        path.chmod(int(file["permissions"], 8))
    return folder
