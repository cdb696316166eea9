"""The act `container`: an environment that exists only in a container image learns on a worker."""

from __future__ import annotations

from pathlib import Path

from payload.environments import container
from rehearsal.addresses import METADATA_ADDRESS, REGISTRY_ADDRESS
from rehearsal.azure.certificates import server_certificate
from rehearsal.backend import storage_accounts
from rehearsal.host_paths import IMAGES
from rehearsal.machines.nspawn_machine import Machine, all_machines
from rehearsal.registry import Registry, debian_layer, layer
from rehearsal.scenario.context import Context
from rehearsal.scenario.head_commands import AS_RAY, EXPERIMENTS, PYTHON
from rehearsal.scenario.laptop import ON_THE_INTERNET, Volley, newest_run
from rehearsal.scenario.outcomes import UnexpectedError
from rehearsal.scenario.training_watch import ENV_RUNNER, until

IMAGE = Path(__file__).parent / "image"
NAME = "in-image"
"""The experiment, by the name of its file."""
PORT = 5443
LOGIN = ("team", "a password of this rehearsal")
OWN_FILES = {
    "catch.py": "usr/lib/python3/dist-packages/catch.py",
    "rows": "usr/share/catch/rows",
}
REACHES = f"""\
import os, urllib.error, urllib.request
assert not os.path.exists("/etc/ssh"), "the machine's keys"
assert os.getuid(), "root"
try:
    urllib.request.urlopen("http://{METADATA_ADDRESS}/metadata/instance", timeout=5)
except urllib.error.HTTPError as error:
    raise AssertionError("the metadata service") from error
except OSError:
    print("nothing")
"""
"""A program that prints what a container reaches and should not."""
STARTS_S, LEARNS_S = 240.0, 120.0


def containers(context: Context, volley: Volley) -> str:
    """Serves a private image, submits an experiment that needs it, and looks at its processes."""
    image = _push_image()
    refusals = [_refusal(volley, "no-login", "catch:1", "unauthorized")]
    user, password = LOGIN
    login = f"{REGISTRY_ADDRESS}:{PORT}"
    volley.type("registry-login", login, "--username", user, text=password)
    refusals.append(_refusal(volley, "wrong-tag", "catch:2", "manifest unknown"))
    volley.type("submit", str(IMAGE / f"{NAME}.yaml"))
    seconds = until(lambda: NAME in volley.training(), STARTS_S, "the training in the image")
    inside = _check_env_runners()
    _check_what_it_reaches(context.head, image)
    learned = until(lambda: NAME in volley.finished(), LEARNS_S, "the goal of the experiment")
    _forget_run(context)
    return (
        f"{inside}; first learner update after {seconds:.0f} s, learned {learned:.0f} s later; "
        f"before: {', '.join(refusals)}"
    )


def _push_image() -> str:
    """Serves an image on the internet, until `clean` ends everything there; returns its name."""
    IMAGES.mkdir()
    registry = Registry(IMAGES, REGISTRY_ADDRESS, PORT, ON_THE_INTERNET, LOGIN)
    ca = storage_accounts().ca_certificate
    registry.start(*server_certificate(IMAGES, [], [REGISTRY_ADDRESS], ca))
    content = {place: (IMAGE / file).read_bytes() for file, place in OWN_FILES.items()}
    layers = [debian_layer(IMAGES / "debian.tar"), layer(IMAGES / "own.tar", content)]
    return registry.push("team/catch:1", layers, {"CATCH_COLUMNS": "7"})


def _refusal(volley: Volley, name: str, image: str, words: str) -> str:
    """Submits the experiment with an image that cannot be had; returns why it has failed."""
    file = volley.folder / f"{name}.yaml"
    file.write_text((IMAGE / f"{NAME}.yaml").read_text().replace("catch:1", image))
    volley.type("submit", str(file))
    until(lambda: volley.states().get(name) == "FAILED", 60, f"{name} is refused")
    reason = str(volley.experiments()[name]["reason"])
    if words not in reason:
        raise UnexpectedError(f"{name}: {reason}")
    return words


def _check_env_runners() -> str:
    """Looks at the env runners: all are in the image, as the machines' user, one on a worker."""
    names = []
    for machine in all_machines():
        lines = machine.run("ps", "-eo", "pid=,user=,args=").stdout.splitlines()
        for process, user in (line.split()[:2] for line in lines if ENV_RUNNER.search(line)):
            own = f"/proc/{process}/root/usr/share/catch/rows"
            outside = machine.run("test", "-e", own, check=False).returncode
            if outside or user != "ray":
                raise UnexpectedError(f"an env runner on {machine.name} is {user}'s: {lines}")
            names.append(machine.name)
    if not set(names) - {"head"}:
        raise UnexpectedError(f"env runners on {', '.join(names)}")
    return f"env runners in it on {' and '.join(names)}"


def _check_what_it_reaches(head: Machine, image: str) -> None:
    """Runs a program in the image as Ray does."""
    command = [*AS_RAY, f"PYTHONPATH={EXPERIMENTS}/{NAME}", PYTHON, "-m", container.MODULE]
    done = head.run(*command, image, "--", "python3", "-c", REACHES, check=False)
    if done.stdout.strip() != "nothing":
        raise UnexpectedError(f"what a container reaches: {done.stdout} {done.stderr}")


def _forget_run(context: Context) -> None:
    """Deletes the MLflow run: for the other acts the newest one is the stack's experiment."""
    with context.tunnel() as laptop:
        mlflow = context.outputs["mlflow"]
        body = {"run_id": newest_run(laptop, mlflow)["info"]["run_id"]}
        laptop.get(f"{mlflow}/api/2.0/mlflow/runs/delete", body)
