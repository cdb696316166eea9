"""`volley-head submit`: unpacks an experiment, checks it, and puts it into the queue."""

import hashlib
import json
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ..archive import ArchiveError, check_room, open_stream, unpack
from ..cluster_settings import read_settings
from ..files import update_with
from ..queue.cluster_state import read_cluster_state
from ..queue.plan import EXPERIMENT, FILES, REFUSAL, STACK, Plan, key_of, process
from ..queue.record import SUBMITTED_BY, Record
from ..queue.sharing import fits
from ..queue.store import RefusedError, Store
from ..room import Needs, Node

NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
PAYLOAD = "payload.tar"
MAX_WHO = 100


@dataclass(frozen=True)
class Submission:
    """The options of a submit."""

    name: str
    now: bool = False
    replaces: bool = False
    priority: int | None = None


def submit(
    store: Store,
    stream: IO[bytes],
    submission: Submission,
    on_accepted: Callable[[bool], object] = lambda _: None,
) -> Record:
    """Puts the experiment of a tar stream into the queue.

    Args:
        on_accepted: See Store.submit.

    Raises:
        RefusedError: The name, the files or the experiment cannot be used, or it never fits.
    """
    name = submission.name
    if not NAME.fullmatch(name):
        raise RefusedError(f"{name!r} is not a name: at most 40 of a-z, 0-9 and -")
    content = Path(tempfile.mkdtemp(prefix=".incoming-", dir=store.root))
    try:
        digest = _unpack(stream, content)
        plan = _read_plan(content)
        _check_room(Needs(**plan.needs))
        record = Record(
            name,
            digest=digest,
            key=key_of(name, plan.resume_key, content),
            needs=plan.needs,
            script=plan.script,
            machines_timeout_s=plan.machines_timeout_s,
            now=submission.now,
            up=submission.replaces,
            submitted_by=who(content / SUBMITTED_BY),
            algorithm=plan.algorithm,
            env=plan.env,
            notify=plan.notify,
        )
        how = submission.replaces, submission.priority
        return store.submit(record, content, *how, on_accepted)
    finally:
        shutil.rmtree(content, ignore_errors=True)


def _unpack(stream: IO[bytes], folder: Path) -> str:
    """Unpacks the files of an experiment; returns the hash of all of them."""
    try:
        with open_stream(stream) as archive:
            for member in archive:
                name = member.name.removeprefix("./")
                file = archive.extractfile(member) if member.isfile() else None
                if name in (PAYLOAD, EXPERIMENT, STACK, FILES, SUBMITTED_BY) and file is not None:
                    check_room(member.size, folder)
                    with (folder / name).open("wb") as copy:
                        shutil.copyfileobj(file, copy)
    except ArchiveError as error:
        raise RefusedError(f"the files cannot be unpacked: {error}") from None
    except (tarfile.TarError, EOFError) as error:
        raise RefusedError(f"the files arrived incomplete: {error}") from None
    digest = hashlib.sha256()
    for name in (EXPERIMENT, STACK, PAYLOAD, FILES):
        path = folder / name
        if path.exists():
            digest.update(f"{name} {path.stat().st_size}\n".encode())
            update_with(digest, path)
        elif name != FILES:
            raise RefusedError(f"the files arrived incomplete: {name} is missing")
    for name in (PAYLOAD, FILES):
        if (folder / name).exists():
            try:
                unpack(folder / name, folder)
            except (ArchiveError, tarfile.TarError) as error:
                raise RefusedError(f"{name} cannot be unpacked: {error}") from None
    (folder / PAYLOAD).unlink()
    return digest.hexdigest()


def who(file: Path) -> str:
    """Returns who submits; "" if nobody says so, as an older laptop."""
    try:
        text = file.read_text("utf-8", "replace")[:MAX_WHO]
    except FileNotFoundError:
        return ""
    return "".join(letter for letter in text if letter.isprintable()).strip()


def _read_plan(folder: Path) -> Plan:
    """Returns the output of head.queue.plan: the submitted payload reads the experiment."""
    command, environment = process("head.queue.plan", folder)
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode == REFUSAL:
        raise RefusedError(done.stdout.strip())
    if done.returncode != 0:
        raise RefusedError(f"the experiment cannot be read: exit code {done.returncode}")
    return Plan(**json.loads(done.stdout))


def _check_room(needs: Needs) -> None:
    settings = read_settings()
    seen = [Node(node.cpus, node.gpus) for node in read_cluster_state().nodes]
    nodes = settings.largest if settings else seen
    if not nodes or fits(needs, nodes):
        return
    cpus, gpus = sum(node.cpus for node in nodes), sum(node.gpus or 0 for node in nodes)
    raise RefusedError(
        f"needs {_in_words(needs)}; the cluster has at most {cpus} CPUs and {gpus:g} GPUs "
        f"({len(nodes)} machines)"
    )


def _in_words(needs: Needs) -> str:
    """Returns the fewest resources with which an experiment can train, in words."""
    env_runners = max(needs.least, 1) + needs.evaluation_env_runners
    cpus = env_runners * needs.cpus_per_env_runner + needs.cpu_learners
    gpus = needs.gpu_learners * needs.gpus_per_learner
    return f"{gpus:g} GPUs and {cpus} CPUs" if gpus else f"{cpus} CPUs"
