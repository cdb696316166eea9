"""volley's programs, files and units on the head: no other module of the rehearsal names them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from head import paths
from head.queue.record import STATE, STATUS
from rehearsal.machines.nspawn_machine import Machine

EXPERIMENTS = str(paths.EXPERIMENTS)
SECRETS = str(paths.SECRETS)
WRITTEN = ("/etc", "/home", "/root", "/run", "/tmp", "/var")
LIBRARY = "/usr/local/lib/volley"
SOFTWARE = str(paths.SOFTWARE)
VOLLEY_HEAD = "/usr/local/bin/volley-head"
PYTHON = str(paths.PYTHON)
AS_RAY = ["runuser", "--user", "ray", "--", "env", f"HOME={paths.HOME}"]
AS_RAY += ["RAY_AUTH_MODE=token", "RAY_AUTH_TOKEN_PATH=/etc/volley/ray-token"]

AS_MLFLOW = ("--uid=mlflow", "--setenv=AZURE_POD_IDENTITY_AUTHORITY_HOST=http://127.0.0.1:1010")
"""Options of systemd-run; MLflow gets its tokens there."""

QUEUE_UNIT = "experiments.service"
SAVE_UNIT = "sync-results.service"
CLOCK_UNITS = (QUEUE_UNIT, "cluster-sleep.service")
FAKETIME = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"
SERVICES = ("head.queue", "head.scheduled_events", "head.identity")
"""The programs that run on the head all the time, besides Ray and MLflow."""
SAVE_FAULT = f"/run/systemd/system/{SAVE_UNIT}.d/fault.conf"

TOKEN_PUBLISHED = "/etc/volley/ray-token.published"
PUBLISH_TOKEN = f"{LIBRARY}/publish-ray-token"
PUT_BLOB = f"/usr/bin/python3 {LIBRARY}/blob.py put"
TAKE_ENVIRONMENT = f"/usr/bin/python3 {LIBRARY}/take_environment.py"

PYTHON_ENVIRONMENT_UNIT = "python-environment.service"
ENVIRONMENT_ARCHIVE = "/opt/volley/environment.tar.zst"
"""There until the environment is shared."""

IN_STORE = (*AS_RAY, f"PYTHONPATH={SOFTWARE}", PYTHON, "-c")
SUBMIT_COPIES = """
import shutil
from head.queue.record import Record
from head.queue.store import Store
store = Store()
like = store.get("{like}")
for number in range({count}):
    content = store.root / f".copy-{{number}}"
    shutil.copytree(store.folder(like.name), content)
    name = f"copy-{{number}}"
    store.submit(Record(name, digest=name, key=name, needs=like.needs), content, False)
"""
STOP_COPIES = """
from head.queue.store import Store
for number in range({count}):
    Store().stop(f"copy-{{number}}")
"""

POLL_FILE = "head/queue/__main__.py"
"""In the project, and in SOFTWARE on the head."""
POLL, OTHER_POLL = "POLL_S = 1.0", "POLL_S = 1.1"
"""How often the queue looks at its experiments."""
QUEUE_RELOADED = "loading the new version of the queue"
"""The queue's log when it has changed."""


def status(head: Machine) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(head.run(VOLLEY_HEAD, "status").stdout)
    return answer


def stop(head: Machine, experiment: str) -> None:
    head.run(VOLLEY_HEAD, "stop", experiment)


def resume(head: Machine, experiment: str) -> None:
    head.run(VOLLEY_HEAD, "resume", experiment)


def states(head: Machine) -> dict[str, str]:
    """Reads the state of each experiment from the head's disk, which costs the head no process."""
    files = _on_disk(head, paths.EXPERIMENTS).glob(f"*/{STATE}")
    return {file.parent.name: json.loads(file.read_text())["state"] for file in files}


def run_status(head: Machine, experiment: str) -> dict[str, Any]:
    """Reads what the training of an experiment has written about itself."""
    file = _on_disk(head, paths.EXPERIMENTS) / experiment / STATUS
    run: dict[str, Any] = json.loads(file.read_text())
    return run


def progress_files(head: Machine) -> list[Path]:
    """Returns progress.csv of all runs, the newest last, as this machine sees them."""
    files = _on_disk(head, paths.RUNS).glob("*/runs/*/progress.csv")
    return sorted(files, key=lambda file: file.stat().st_mtime)


def checkpoint_files(head: Machine) -> set[str]:
    """Returns the files of all checkpoints, by the names that they have in Blob."""
    runs = _on_disk(head, paths.RUNS)
    return {
        f"runs/{(Path(folder) / name).relative_to(runs)}"
        for checkpoints in runs.glob("*/runs/*/checkpoints")
        for folder, folders, files in os.walk(checkpoints)
        # A link is a file in Blob, also one to a folder. Signatures stay on their machine.
        for name in [*files, *(name for name in folders if Path(folder, name).is_symlink())]
        if not name.startswith(".")
    }


def submit_copies(head: Machine, like: str, count: int) -> None:
    """Queues copies of an experiment on the head itself: over SSH each would take a second."""
    head.run(*IN_STORE, SUBMIT_COPIES.format(like=like, count=count), timeout_s=240)


def stop_copies(head: Machine, count: int) -> None:
    head.run(*IN_STORE, STOP_COPIES.format(count=count), timeout_s=240)


def services_memory_mib(head: Machine) -> float:
    """Returns the memory of SERVICES: a container has no memory cgroup to read."""
    lines = head.run("ps", "-eo", "rss,args").stdout.splitlines()
    kibibytes = [line.split()[0] for line in lines if any(name in line for name in SERVICES)]
    return sum(map(int, kibibytes)) / 1024


def files_with(head: Machine, text: str) -> set[str]:
    """Returns the files that contain a text, in the folders to which the head writes."""
    listing = head.run("grep", "-rlsF", "-e", text, *WRITTEN, check=False)
    return set(listing.stdout.splitlines())


def queue_log(head: Machine) -> str:
    return head.run("journalctl", f"--unit={QUEUE_UNIT}", "--output=cat").stdout


def queue_is_active(head: Machine) -> bool:
    return head.run("systemctl", "--quiet", "is-active", QUEUE_UNIT, check=False).returncode == 0


def software_digest(head: Machine) -> str:
    files = f"cd {SOFTWARE}/ && find . -name '*.py' -exec sha256sum {{}} + | sort | sha256sum"
    return head.run("sh", "-c", files).stdout


def save_results(head: Machine) -> None:
    """Saves results to the account now; returns when that is done."""
    head.run("systemctl", "start", SAVE_UNIT)


@contextmanager
def saving_does(head: Machine, command: str) -> Iterator[None]:
    """Lets saving run a command first: "/bin/false" to fail, "/bin/sleep infinity" to hang."""
    fault = f"[Service]\nExecStartPre={command}\n"
    head.run("install", "-D", "-m", "0644", "/dev/stdin", SAVE_FAULT, text=fault)
    head.run("systemctl", "daemon-reload")
    try:
        yield
    finally:
        head.run("rm", SAVE_FAULT)
        head.run("systemctl", "daemon-reload")
        head.run("systemctl", "stop", SAVE_UNIT)


@contextmanager
def own_clock(head: Machine, offset_s: str) -> Iterator[None]:
    """Steps the wall clock of the queue and of sleep, for example by "+3600"."""
    variables = f"LD_PRELOAD={FAKETIME} FAKETIME={offset_s} FAKETIME_DONT_FAKE_MONOTONIC=1"
    files = [f"/run/systemd/system/{unit}.d/clock.conf" for unit in CLOCK_UNITS]
    try:
        for file in files:
            text = f"[Service]\nEnvironment={variables}\n"
            head.run("install", "-D", "-m", "0644", "/dev/stdin", file, text=text)
        _restart_queue(head)
        yield
    finally:
        head.run("rm", "-f", *files)
        _restart_queue(head)


def _restart_queue(head: Machine) -> None:
    head.run("systemctl", "daemon-reload")
    # Its end may take two minutes: TimeoutStopSec=.
    head.run("systemctl", "try-restart", QUEUE_UNIT, timeout_s=180)


def workers_problem(head: Machine) -> str:
    """Returns why Ray's autoscaler cannot ask Azure; empty if it can."""
    return str(json.loads(head.run("cat", paths.WORKERS).stdout)["problem"])


def _on_disk(machine: Machine, path: Path) -> Path:
    """Returns a path of a running machine as this machine sees it."""
    return Path(f"/proc/{machine.leader}/root", path.relative_to("/"))
