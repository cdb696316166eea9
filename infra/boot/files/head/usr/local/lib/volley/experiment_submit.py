"""`volley-head submit`: unpacks what has arrived, checks it, and puts it into the queue."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import IO, Any

import head_status
from cluster_room import Needs, Node
from cluster_settings import read_settings
from experiment_plan import EXPERIMENT, FILES, REFUSAL, STACK, key_of
from experiment_record import Record
from experiment_store import RefusedError, Store
from sharing import fits

NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
PAYLOAD = "payload.tar"
PYTHON = "/opt/volley/venv/bin/python"
PLAN = Path(__file__).with_name("experiment_plan.py")


def submit(store: Store, name: str, stream: IO[bytes], now: bool, replaces: bool) -> Record:
    """Puts the experiment that a tar stream holds into the queue.

    Raises:
        RefusedError: The name, the files or the experiment cannot be used, or it never fits.
    """
    if not NAME.fullmatch(name):
        raise RefusedError(f"{name!r} is not a name: a-z, 0-9 and -, at most 40 of them")
    content = Path(tempfile.mkdtemp(prefix=".incoming-", dir=store.root))
    try:
        digest = _unpack(stream, content)
        needs = _needs(content)
        _check_room(needs)
        # The queue is told where the experiment will be, and its key depends on its name.
        record = Record(name, digest=digest, key=key_of(name, content), needs=needs)
        record = Record(**{**vars(record), "now": now, "up": replaces})
        return store.submit(record, content, replaces)
    finally:
        shutil.rmtree(content, ignore_errors=True)


def _unpack(stream: IO[bytes], folder: Path) -> str:
    """Unpacks the files of an experiment; returns the hash of all of them."""
    try:
        with tarfile.open(fileobj=stream, mode="r|*") as archive:
            for member in archive:
                name = member.name.removeprefix("./")
                file = archive.extractfile(member) if member.isfile() else None
                if name in (PAYLOAD, EXPERIMENT, STACK, FILES) and file is not None:
                    with (folder / name).open("wb") as copy:
                        shutil.copyfileobj(file, copy)
    except (tarfile.TarError, EOFError) as error:
        raise RefusedError(f"the files did not arrive whole: {error}") from None
    found = hashlib.sha256()
    for name in (EXPERIMENT, STACK, PAYLOAD, FILES):
        path = folder / name
        if path.exists():
            found.update(f"{name} {path.stat().st_size}\n".encode() + path.read_bytes())
        elif name != FILES:
            raise RefusedError(f"the files did not arrive whole: {name} is missing")
    for name in (PAYLOAD, FILES):
        if (folder / name).exists():
            tar = ["tar", "--extract", "--no-same-owner", "--file", name]
            subprocess.run(tar, cwd=folder, check=True)
    (folder / PAYLOAD).unlink()
    return found.hexdigest()


def _needs(folder: Path) -> dict[str, Any]:
    """Returns what the experiment asks of the cluster, as the payload reads it."""
    done = subprocess.run(
        [PYTHON, str(PLAN), str(folder)], stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode == REFUSAL:
        raise RefusedError(done.stdout.strip())
    if done.returncode != 0:
        raise RefusedError(f"the experiment cannot be read: exit code {done.returncode}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _check_room(needs: dict[str, Any]) -> None:
    settings = read_settings()
    seen = [Node(node["cpus"], node["gpus"]) for node in head_status.nodes()]
    nodes = settings.largest if settings else seen
    asked = Needs(**needs)
    if not nodes or fits(asked, nodes):
        return
    cpus, gpus = sum(node.cpus for node in nodes), sum(node.gpus for node in nodes)
    learners = asked.cpu_learners + asked.gpu_learners
    raise RefusedError(
        f"it never fits: {learners} learners ({asked.gpus_per_learner:g} GPUs each), "
        f"{asked.evaluation_env_runners} env runners for evaluation and 1 that samples "
        f"({asked.cpus_per_env_runner} CPUs each) on {len(nodes)} machines with "
        f"{cpus} CPUs and {gpus:g} GPUs"
    )
