"""Container images: real ones, from a real registry, entered as Ray's workers do."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray

from payload.environments.container import MODULE, PYTHON, check, container_environment
from payload.environments.image import IMAGES, pull, resolve
from payload.environments.registry_logins import LOGINS, registry_of
from payload.errors import TemporaryError, UserError
from rehearsal.host_paths import BASE
from rehearsal.registry import Registry, layer
from tests.container_registry import MAZE, Images, registry_with_images
from tests.project import ROOT

pytestmark = pytest.mark.slow

SHELL = ("bin/dash", "lib/x86_64-linux-gnu/libc.so.6", "lib64/ld-linux-x86-64.so.2")
ENTER = (sys.executable, "-m", MODULE)
LOOK = """
import json, os, sys
import maze, ray
from pathlib import Path
Path("/usr/written").touch()
Path("seen").write_text("here")
print(json.dumps({
    "maze": maze.__file__, "ray": ray.__file__, "variables": dict(os.environ), "cwd": os.getcwd(),
    "pid": os.getpid(), "keys": os.path.exists("/etc/ssh"), "home": os.path.exists("/root/.bashrc"),
    "privileges": Path("/proc/self/status").read_text().split("NoNewPrivs:")[1].split()[0],
}))
"""


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Images]:
    with registry_with_images(tmp_path_factory.mktemp("registry")) as made:
        yield made


def inside(
    image: str, *command: str, folder: Path, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Runs a command in an image, in a folder that it may write to."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    wrapper = [*ENTER, image, "--folders", str(folder), "--", *command]
    return subprocess.run(
        wrapper, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_a_command_has_the_image_s_files_and_the_machine_s_packages(
    images: Images, tmp_path: Path
) -> None:
    done = inside(images.maze, "python3", "-c", LOOK, folder=tmp_path, LEVEL="it's 2")
    seen = json.loads(done.stdout or done.stderr)
    assert seen["maze"] == MAZE
    assert seen["ray"] == ray.__file__
    variables = seen["variables"]
    assert (variables["MAZE"], variables["LEVEL"]) == ("two walls", "it's 2")
    assert (variables["HOME"], seen["keys"], seen["home"]) == ("/home/ray", False, False)
    assert (seen["cwd"], seen["privileges"]) == (str(tmp_path), "1")
    assert (tmp_path / "seen").read_text() == "here"
    # What it writes elsewhere is gone.
    assert not list(Path.home().glob(f"{IMAGES}/*/rootfs/usr/written"))


def test_a_container_is_the_process_that_was_started(images: Images) -> None:
    # So Ray's signals reach it, and a service's end ends it.
    command = ["sh", "-c", "echo $$; exec sleep 60"]
    wrapper = [*ENTER, images.maze, "--", *command]
    with subprocess.Popen(wrapper, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert int(process.stdout.readline()) == process.pid
        process.terminate()
        assert process.wait(10) == -15


def test_a_tag_becomes_a_digest(images: Images) -> None:
    name = images.maze.partition("@")[0]
    assert resolve(f"{name}:1") == images.maze
    assert resolve(images.maze) == images.maze
    assert resolve(images.maze.replace("@", ":1@")) == images.maze


@pytest.mark.parametrize(
    ("image", "error", "words"),
    [
        ("{registry}/team/maze:2", UserError, "manifest unknown"),
        ("{registry}/team/Maze:1", UserError, "invalid reference format"),
        ("127.0.0.1:9/team/maze:1", TemporaryError, "connection refused"),
    ],
)
def test_an_image_that_cannot_be_had_is_told_in_one_line(
    images: Images, image: str, error: type[Exception], words: str
) -> None:
    name = image.format(registry=f"127.0.0.1:{images.registry.port}")
    with pytest.raises(error, match=rf"^image: {name}: .*{words}"):
        resolve(name)


def test_a_private_image_needs_the_login_of_its_registry(images: Images, tmp_path: Path) -> None:
    private = Registry(tmp_path, "127.0.0.1", images.registry.port, login=("me", "secret"))
    images.registry.stop()
    private.start()
    try:
        image = private.push("team/own:1", [layer(tmp_path / "l.tar", {"bin/x": b"x"})], {})
        with pytest.raises(UserError, match=rf"^image: {image}: .*unauthorized"):
            pull(image)
        login = base64.b64encode(b"me:secret").decode()
        (Path.home() / LOGINS).write_text(
            json.dumps({"auths": {image.partition("/")[0]: {"auth": login}}})
        )
        assert pull(image).is_dir()
    finally:
        (Path.home() / LOGINS).unlink(missing_ok=True)
        private.stop()
        images.registry.start()


def test_processes_that_want_one_image_at_once_pull_it_once(images: Images, tmp_path: Path) -> None:
    image = images.registry.push("team/small:1", [layer(tmp_path / "l.tar", {"bin/x": b"x"})], {})
    code = f"from payload.environments.image import pull; print(pull({image!r}).stat().st_ino)"
    command = [sys.executable, "-c", code]
    pulls = [
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    assert len({process.communicate()[0] for process in pulls}) == 1
    assert [process.returncode for process in pulls] == [0, 0, 0]
    assert not list(pull(image).parent.glob("aside-*"))


def test_an_image_that_ray_cannot_run_in_is_refused(images: Images, tmp_path: Path) -> None:
    check(images.maze)
    empty = images.registry.push("team/empty:1", [layer(tmp_path / "a.tar", {"bin/x": b"x"})], {})
    with pytest.raises(UserError, match=rf"has no python3; it needs Python {PYTHON}"):
        check(empty)
    shell: dict[str, bytes | str] = {name: (BASE / "usr" / name).read_bytes() for name in SHELL}
    shell |= {"bin/sh": shell["bin/dash"], "bin/python3": b"#!/bin/sh\necho 3.8\n"}
    # The root of such a link is the image's.
    shell["etc"] = str(tmp_path)
    old = images.registry.push("team/old:1", [layer(tmp_path / "b.tar", shell)], {})
    with pytest.raises(UserError, match=rf"has Python 3.8; the cluster's is {PYTHON}"):
        check(old)
    assert not (tmp_path / "passwd").exists()
    programs = dict.fromkeys(("bin/python3", "bin/sh"), b"\x7fELF\x02\x01\x01")
    foreign = images.registry.push("team/foreign:1", [layer(tmp_path / "c.tar", programs)], {})
    with pytest.raises(UserError, match="is for another architecture than linux/amd64"):
        check(foreign)


def test_the_machine_s_own_variables_stay_outside(tmp_path: Path) -> None:
    config = {"process": {"env": ["PATH=/opt/java/bin:/bin", "JAVA_HOME=/opt/java"]}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    variables = {"PATH": "/sbin", "HOME": "/var/lib/volley", "JAVA_HOME": "/usr", "LEVEL": "2"}
    seen = container_environment(tmp_path, variables)
    assert (seen["PATH"], seen["HOME"]) == ("/opt/java/bin:/bin", "/home/ray")
    assert (seen["JAVA_HOME"], seen["LEVEL"]) == ("/usr", "2")
    variables["LD_LIBRARY_PATH"] = "/opt/mine"
    assert "/opt/mine" not in container_environment(tmp_path, variables)["LD_LIBRARY_PATH"]
    mine = container_environment(tmp_path, variables, ["LD_LIBRARY_PATH"])
    assert mine["LD_LIBRARY_PATH"].startswith("/opt/mine:")


@pytest.mark.parametrize(
    ("image", "registry"),
    [
        ("python:3.11-slim", "docker.io"),
        ("team/maze:1", "docker.io"),
        ("ghcr.io/team/maze", "ghcr.io"),
        ("localhost/maze", "localhost"),
        ("10.0.0.1:5443/maze@sha256:0", "10.0.0.1:5443"),
    ],
)
def test_the_registry_is_the_one_that_docker_reads(image: str, registry: str) -> None:
    assert registry_of(image) == registry
