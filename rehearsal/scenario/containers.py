"""The act `container`: an environment that exists only in a container image learns on a worker."""

from __future__ import annotations

from pathlib import Path

from payload.environments import container
from rehearsal.addresses import METADATA_ADDRESS, REGISTRY_ADDRESS
from rehearsal.azure.certificates import server_certificate
from rehearsal.backend import storage_accounts
from rehearsal.host_paths import IMAGES
from rehearsal.host_shell import CommandError
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
STARTS_S, COMES_S, ENDS_S = 120.0, 120.0, 180.0
LEARNED = 0.3
"""Without looking it is about -0.5; how far a training comes depends on the machine."""


def containers(context: Context, volley: Volley) -> str:
    """Serves a private image, submits an experiment that needs it, and looks at its processes."""
    image = _push_image()
    refusals = [_refusal(volley, "no-login", "catch:1", "authentication required")]
    user, password = LOGIN
    login = f"{REGISTRY_ADDRESS}:{PORT}"
    volley.type("registry-login", login, "--username", user, text=password)
    refusals.append(_refusal(volley, "wrong-tag", "catch:2", "manifest unknown"))
    volley.type("submit", str(IMAGE / f"{NAME}.yaml"))
    seconds = until(lambda: NAME in volley.training(), STARTS_S, "the training in the image")
    _check_what_it_reaches(context.head, image)
    until(lambda: bool(set(_env_runners()) - {"head"}), COMES_S, "an env runner on a worker")
    places = " and ".join(_env_runners())
    until(lambda: NAME not in volley.training(), ENDS_S, "the end of the experiment")
    _forget_run(context)
    run = volley.experiments()[NAME]
    reached = run["status"]["episode_return"]
    if run["state"] != "FINISHED" or reached < LEARNED:
        raise UnexpectedError(f"{run['state']}, a return of {reached}: {run['reason']}")
    return (
        f"first learner update after {seconds:.0f} s, env runners in the image on {places}, a "
        f"return of {reached:.2f}; before: {', '.join(refusals)}"
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


def _env_runners() -> list[str]:
    """Returns the machine of each env runner; all are in the image, as the machines' user."""
    names = []
    for machine in all_machines():
        try:
            lines = machine.run("ps", "-eo", "pid=,user=,args=").stdout.splitlines()
        except CommandError:  # It is only booting.
            continue
        for process, user in (line.split()[:2] for line in lines if ENV_RUNNER.search(line)):
            own = f"/proc/{process}/root/usr/share/catch/rows"
            outside = machine.run("test", "-e", own, check=False).returncode
            if outside or user != "ray":
                raise UnexpectedError(f"an env runner on {machine.name} is {user}'s: {lines}")
            names.append(machine.name)
    return names


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
