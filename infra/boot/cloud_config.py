"""The cloud-config of each role: its files unchanged, and its environment rendered."""

import base64
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import pulumi
import yaml

import head.machine_token
import head.scheduled_events
from infra.ports import DASHBOARD, MLFLOW, reserved_ports
from infra.project_files import PROJECT

FILES = Path(__file__).parent / "files"
REQUIREMENTS = PROJECT / "requirements"
LOCK = "machine.txt.gz"
LIBRARY = "/usr/local/lib/volley"
MAX_CUSTOM_DATA = 65_535
"""Bytes, before base64; https://learn.microsoft.com/azure/virtual-machines/custom-data."""
PYTHON_VERSION = "3.13"
"""The newest that every lock supports, and that Debian 13 has: the rehearsal's machines run it."""
APT_PACKAGES = ("nftables", "python3-pip", "zstd")
"""Packages that every machine needs on Debian; Ubuntu's images have them."""

CONTAINER_PACKAGES = ("skopeo", "umoci")
"""Packages of Ubuntu and Debian, with what they depend on."""
Role = Literal["head", "worker"]
UNITS: dict[Role, list[str]] = {
    "head": ["ray-head.service"],
    "worker": ["ray-worker.service", "scheduled-events.service"],
}
HEAD_SOFTWARE_UNITS = [
    "experiments.service",
    "mlflow.service",
    "share-environment.service",
    "sync-results.timer",
]
"""Units of the head's software, which arrive later: infra/boot/install_head.sh."""
JOURNAL_UNITS: dict[Role, list[str]] = {
    "head": [
        "ray-head.service",
        "head-watchdog.service",
        "share-environment.service",
        "identity.service",
        "sync-results.service",
        "disk-space.service",
        "cluster-sleep.service",
    ],
    "worker": ["ray-worker.service", "scheduled-events.service"],
}
"""Units whose journal a Log Analytics workspace receives, besides BOOT_UNITS. Never
experiments.service, whose journal contains the output of experiments."""
BOOT_UNITS = ["cloud-*", "apt-packages.service", "python-environment.service"]
MODULES: dict[Role, list[ModuleType]] = {
    "head": [head.machine_token],
    "worker": [head.machine_token, head.scheduled_events],
}
"""Files of the head's package that a machine needs before it arrives, or without it."""
STOP_BEFORE_EVICTION: dict[Role, str] = {
    "head": "experiments.service sync-results.timer ray-head.service",
    "worker": "ray-worker.service",
}
AGENT = "/etc/waagent.conf"
ANSWER_AT_ONCE = (
    f"[ ! -e {AGENT} ] || sed -i 's/^Extensions.GoalStatePeriod=.*/Extensions.GoalStatePeriod=6/' "
    f"{AGENT}"
)
"""Azure's HPC images poll for run commands every five minutes; here, every six seconds. cloud-init
runs it before the agent starts: an agent that restarts while it takes a run command may hang.
https://github.com/Azure/azhpc-images, components/install_waagent.sh"""
RESERVED_PORTS = f"""\
# The kernel uses none of Ray's ports for outgoing connections.
net.ipv4.ip_local_reserved_ports = {reserved_ports()}
"""


@dataclass(frozen=True)
class MachineEnvironment:
    """Values of a machine that are known only while the stack is created."""

    role: Role
    ray_start_flags: list[str]
    results_account: str
    results_container: str
    token_container: str
    environment_container: str
    identity_client_id: str
    mlflow_client_id: str
    """Of the identity for MLflow's server; empty on a worker."""
    mlflow_tracking_uri: str
    environment_variables: dict[str, str] = field(default_factory=dict)
    """The user's variables, for Ray and the training."""
    pip_packages: list[str] = field(default_factory=list)
    apt_packages: list[str] = field(default_factory=list)
    containers: bool = False
    """Whether experiments may run in container images."""
    container_registry: str = ""
    """An Azure Container Registry from which the machine's identity may pull: name.azurecr.io."""
    gpus: int = 0
    shared_memory_gib: int = 0
    """0 uses the machine's default."""
    results_address: str = ""
    """IP address of a private endpoint; empty where the account is reached by its public name."""
    mlflow_elsewhere: bool = False
    """Whether a tracking server exists, so that the head starts none."""
    journals_url: str = ""
    """Where the machine sends its journal; empty for nowhere."""

    def variables(self) -> dict[str, str]:
        """Returns the variables in /etc/volley/machine.env."""
        return {
            "RAY_START_FLAGS": " ".join(self.ray_start_flags),
            "RESULTS_ACCOUNT": self.results_account,
            "RESULTS_CONTAINER": self.results_container,
            "TOKEN_CONTAINER": self.token_container,
            "ENVIRONMENT_CONTAINER": self.environment_container,
            "AZURE_CLIENT_ID": self.identity_client_id,
            **({"MLFLOW_CLIENT_ID": self.mlflow_client_id} if self.mlflow_client_id else {}),
            "MLFLOW_TRACKING_URI": self.mlflow_tracking_uri,
            "MLFLOW_PORT": str(MLFLOW),
            # Where Ray's JobSubmissionClient looks for the dashboard.
            "RAY_API_SERVER_ADDRESS": f"http://127.0.0.1:{DASHBOARD}",
            "CONTAINER_REGISTRY": self.container_registry,
            **self._journal(),
            "PYTHON_VERSION": PYTHON_VERSION,
            "GPUS": str(self.gpus),
            "UNITS": " ".join(UNITS[self.role] + HEAD_SOFTWARE_UNITS * (self.role == "head")),
            "STOP_BEFORE_EVICTION": STOP_BEFORE_EVICTION[self.role],
            **self._no_proxy(),
        }

    def _journal(self) -> dict[str, str]:
        """Returns where the machine sends its journal, and that of which units; if anywhere."""
        if not self.journals_url:
            return {}
        units = BOOT_UNITS + JOURNAL_UNITS[self.role]
        return {"JOURNALS_URL": self.journals_url, "JOURNAL_UNITS": " ".join(units)}

    def _no_proxy(self) -> dict[str, str]:
        """Returns what a proxy in the user's variables does not carry, beside what they say.

        That is the machine itself, its metadata service, and the results account, whose firewall
        admits the machines' subnets only.
        """
        given = self.environment_variables
        own = f"localhost,127.0.0.1,169.254.169.254,{self.results_account}.blob.core.windows.net"
        hosts = ",".join(filter(None, (given.get("no_proxy") or given.get("NO_PROXY"), own)))
        # Some programs read the one, some the other.
        return {"NO_PROXY": hosts, "no_proxy": hosts}


class CustomDataTooLargeError(pulumi.RunError):
    """A machine's customData is larger than Azure accepts."""


def cloud_config(machine: MachineEnvironment) -> str:
    """Returns a machine's customData; the same machine gives the same bytes.

    Raises:
        CustomDataTooLargeError: The user's packages and variables do not fit.
    """
    config: dict[str, Any] = {
        "bootcmd": [ANSWER_AT_ONCE],
        "write_files": write_files(machine),
        "runcmd": run_commands(machine),
    }
    text = "#cloud-config\n" + yaml.dump(config, Dumper=_Dumper, sort_keys=False, width=1000)
    if len(text.encode()) > MAX_CUSTOM_DATA:
        raise CustomDataTooLargeError(
            "environmentVariables, pipPackages, aptPackages: too long: with them customData of the "
            f"{machine.role} is {len(text.encode()):,} bytes, more than Azure's {MAX_CUSTOM_DATA:,}"
        )
    return text


def write_files(machine: MachineEnvironment) -> list[dict[str, Any]]:
    """Returns cloud-init's write_files: common files, the role's files, and rendered ones."""
    files = []
    optional = {"containers": machine.containers, "journal": bool(machine.journals_url)}
    for root in ("common", machine.role, *(name for name, wanted in optional.items() if wanted)):
        folder = FILES / root
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            # The tests import the scripts; macOS's Finder and editors hide files of their own.
            if path.parent.name == "__pycache__" or path.name.startswith("."):
                continue
            target = f"/{path.relative_to(folder)}"
            script = path.suffix == "" and "/lib/volley/" in target
            text = without_comments(path.read_text())
            files.append(_file(target, text, "0755" if script else "0644"))
    apt_packages = [*APT_PACKAGES, *machine.apt_packages]
    if machine.containers:
        apt_packages += CONTAINER_PACKAGES
    return [
        *files,
        _file("/etc/volley/machine.env", _env_file(machine.variables())),
        _file("/etc/volley/user.env", _env_file(machine.environment_variables), "0640"),
        _file("/etc/volley/pip-packages.txt", "".join(f"{p}\n" for p in machine.pip_packages)),
        _file("/etc/volley/apt-packages.txt", "".join(f"{p}\n" for p in apt_packages)),
        _file("/etc/volley/uv.txt", (REQUIREMENTS / "uv.txt").read_text()),
        _file("/etc/sysctl.d/60-ray-ports.conf", RESERVED_PORTS),
        _binary("/etc/volley/requirements.txt", (REQUIREMENTS / LOCK).read_bytes(), "gz+b64"),
        *(_module(module) for module in MODULES[machine.role]),
        *([_file("/etc/volley/mlflow-elsewhere", "")] if machine.mlflow_elsewhere else []),
        *([_shared_memory(machine)] if machine.shared_memory_gib else []),
        *([_hosts(machine)] if machine.results_address else []),
    ]


def without_comments(text: str) -> str:
    """Returns a program or a unit without what only people read, since customData is small.

    These are comments, empty lines, and docstrings of modules and constants.
    """
    return re.sub(r'^("""[^"]*"""|\s*(#(?!!).*)?)\n', "", text, flags=re.MULTILINE)


def run_commands(machine: MachineEnvironment) -> list[list[str]]:
    """Returns cloud-init's runcmd, which runs once, after the files are written."""
    units = [
        *UNITS[machine.role],
        *(["registry-login.timer"] if machine.container_registry else []),
        *(["send-journal.timer"] if machine.journals_url else []),
    ]
    is_head = machine.role == "head"
    link = ["ln", "-sf", f"{LIBRARY}/volley-head", "/usr/local/bin/volley-head"]
    return [
        ["systemd-sysusers"],
        ["systemd-tmpfiles", "--create", "/etc/tmpfiles.d/volley.conf"],
        ["systemctl", "daemon-reload"],
        # First, and apart: whatever else fails, the head can switch itself off.
        *([["systemctl", "enable", "--now", "head-watchdog.timer"]] if is_head else []),
        ["systemctl", "restart", "systemd-sysctl.service"],
        *([link] if is_head else []),
        # --no-block: cloud-init ends before the units are up.
        ["systemctl", "enable", "--now", "--no-block", *units],
    ]


def _file(path: str, content: str, permissions: str = "0644") -> dict[str, Any]:
    # cloud-init's default is 0644.
    mode = {} if permissions == "0644" else {"permissions": permissions}
    return {"path": path, **mode, "content": content}


def _module(module: ModuleType) -> dict[str, Any]:
    path = Path(str(module.__file__))
    return _file(f"{LIBRARY}/{path.name}", without_comments(path.read_text()))


def _binary(path: str, content: bytes, encoding: str) -> dict[str, Any]:
    return {**_file(path, base64.b64encode(content).decode()), "encoding": encoding}


def _shared_memory(machine: MachineEnvironment) -> dict[str, Any]:
    """Resizes /dev/shm each time Ray starts, since a reboot resets it."""
    size = f"remount,size={machine.shared_memory_gib}g"
    path = f"/etc/systemd/system/ray-{machine.role}.service.d/shared-memory.conf"
    return _file(path, f"[Service]\nExecStartPre=+/bin/mount -o {size} /dev/shm\n")


def _hosts(machine: MachineEnvironment) -> dict[str, Any]:
    """Resolves the account's name to the private endpoint, without a private DNS zone."""
    line = f"{machine.results_address} {machine.results_account}.blob.core.windows.net\n"
    return {**_file("/etc/hosts", line), "append": True}


def _env_file(variables: dict[str, str]) -> str:
    """Quotes values for systemd's EnvironmentFile=."""
    lines = (f"{name}={shlex.quote(value)}\n" for name, value in variables.items())
    return "".join(lines)


class _Dumper(yaml.SafeDumper):
    """Writes text of several lines as a block, so that customData can be read."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)
