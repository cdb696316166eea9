"""Answers as a head's volley-head does, from a folder: what the laptop's tests need of it."""

from __future__ import annotations

import hashlib
import io
import json
import os
import signal
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(os.environ["VOLLEY_ROOT"])
EXPERIMENTS, RUNS = ROOT / "experiments", ROOT / "runs"


def main(verb: str, *arguments: str) -> int:
    flags = [word for word in arguments if word.startswith("--")]
    name = "".join(word for word in arguments[:1] if word not in flags)
    verbs = {
        "status": lambda: answer(cluster()),
        "submit": lambda: submit(name, "--now" in flags),
        "logs": lambda: logs(name, "--follow" in flags) if name else journal(arguments),
        "stop": lambda: change(name, "STOPPED"),
        "resume": lambda: change(name, "QUEUED"),
        "manifest": lambda: manifest(name),
        "files": lambda: files(name),
    }
    return verbs[verb]()


def cut(verb: str) -> None:
    """Ends the connection, once, where a test wants this verb to lose it."""
    wanted = ROOT / "cut"
    if wanted.exists() and wanted.read_text() == verb:
        wanted.unlink()
        sys.stdout.flush()
        time.sleep(0.5)  # What was written is on its way.
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(10)


def answer(found: dict[str, Any]) -> int:
    print(json.dumps(found))
    return 0


def refuse(error: str, next_command: str) -> int:
    print(json.dumps({"error": error, "next": next_command}))
    return 2


def cluster() -> dict[str, Any]:
    states = [json.loads(file.read_text()) for file in sorted(EXPERIMENTS.glob("*/state.json"))]
    node = {"name": "head", "address": "10.42.0.4", "role": "head", "cpus": 4, "gpus": 1}
    return {
        "time": time.time(),
        "nodes": [{**node, "state": "ALIVE"}],
        "experiments": states,
        "saved": {"time": None},
        "head": {"uptime_s": 7200.0, "memory_bytes": 2**27},
    }


def submit(name: str, now: bool) -> int:
    received = sys.stdin.buffer.read()
    cut("submit")
    folder = EXPERIMENTS / name
    digest = hashlib.sha256(received).hexdigest()
    if (folder / "state.json").exists():
        known = json.loads((folder / "state.json").read_text())
        if known["digest"] != digest and known["state"] != "STOPPED":
            return refuse(f"{name} is {known['state']} with another content", f"volley stop {name}")
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(received)) as archive:
        archive.extractall(folder, filter="data")
    (folder / "output.log").write_text("first line\n")
    state = {"name": name, "state": "QUEUED", "position": 1, "digest": digest, "now": now}
    (folder / "state.json").write_text(json.dumps(state))
    return answer(state)


def journal(arguments: tuple[str, ...]) -> int:
    print(f"the log of {' '.join(arguments)}")
    return 0


def logs(name: str, follow: bool) -> int:
    file = EXPERIMENTS / name / "output.log"
    if not file.exists():
        return refuse(f"there is no experiment {name}", "volley status")
    with file.open() as log:
        while True:
            print(log.read(), end="", flush=True)
            if not follow:
                return 0
            time.sleep(0.05)


def change(name: str, state: str) -> int:
    file = EXPERIMENTS / name / "state.json"
    if not file.exists():
        return refuse(f"there is no experiment {name}", "volley status")
    time.sleep(float(os.environ.get("STOP_S", "0")))
    known = {**json.loads(file.read_text()), "state": state}
    file.write_text(json.dumps(known))
    return answer(known)


def manifest(name: str) -> int:
    if not (EXPERIMENTS / name).exists():
        return refuse(f"there is no experiment {name}", "volley status")
    root = RUNS / name
    found = []
    for path in sorted(root.rglob("*")):
        if path.is_file():
            status = path.lstat()
            file = {"path": str(path.relative_to(root)), "size": status.st_size}
            link = {"link": os.readlink(path)} if path.is_symlink() else {}
            found.append({**file, "mtime_ns": status.st_mtime_ns, **link})
    return answer({"root": str(root), "files": found})


def files(name: str) -> int:
    paths = json.loads(sys.stdin.read())
    with (ROOT / "asked").open("a") as asked:
        asked.write(json.dumps(paths) + "\n")
    with tarfile.open(fileobj=sys.stdout.buffer, mode="w|") as archive:
        for path in paths:
            if path == paths[-1]:
                cut("files")
            archive.add(RUNS / name / path, path)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
