"""A Ray cluster of two nodes that was there before the run, which joins it with --address.

It asks for a token, as volley's own does.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from ray._raylet import AuthenticationTokenLoader, Config  # type: ignore[attr-defined]
from ray.cluster_utils import Cluster

from payload.run.run_status import RunStatus
from tests.payload.command_line import (
    TINY,
    learning,
    mlflow_run,
    payload,
    run_folder,
    running,
    steps,
    wait_for,
)

pytestmark = pytest.mark.slow

TWO_ENV_RUNNERS = TINY.replace('"num_workers": 1', '"num_workers": 2, "num_cpus_per_worker": 2')


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Room for one env runner of two CPUs on each node, and a CPU for the driver."""
    # Ray's own health check takes 15 s to notice that a node is gone.
    soon = {"health_check_period_ms": 500, "health_check_failure_threshold": 2}
    with token():
        cluster = Cluster(
            initialize_head=True, head_node_args={"num_cpus": 3, "_system_config": soon}
        )
        cluster.add_node(num_cpus=2)
        try:
            cluster.wait_for_nodes()
            yield cluster
        finally:
            cluster.shutdown()


@contextmanager
def token() -> Iterator[None]:
    """Has Ray ask for a token in all that is started meanwhile."""

    def read_environment() -> None:
        Config.initialize("")
        AuthenticationTokenLoader.instance().reset_cache()

    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("RAY_AUTH_MODE", "token")
        environment.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
        read_environment()
        yield
    read_environment()


def refusal(folder: Path, address: str, *arguments: str) -> str:
    """The one line that a run at this address is refused with; it leaves nothing behind."""
    done = payload(folder, "train", "--address", address, *arguments)
    assert done.returncode == 2, done.stdout + done.stderr
    assert not list(folder.iterdir())
    (line,) = done.stderr.splitlines()
    return line


def test_an_address_that_is_none_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path, "ray://head:10001") == (
        "payload: --address ray://head:10001: is neither auto nor HOST:PORT"
    )


def test_an_address_where_nothing_answers_is_refused(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
        assert "no Ray cluster answers (Connection refused)" in refusal(tmp_path, address)


def test_a_token_that_the_cluster_does_not_know_is_refused(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
    assert "the cluster asks for its own token" in refusal(tmp_path, cluster.address)


def test_more_env_runners_than_the_cluster_has_cpus_are_refused(
    cluster: Cluster, tmp_path: Path
) -> None:
    line = refusal(tmp_path, cluster.address, "--config", '{"num_workers": 5}')
    assert "config.num_env_runners: 5 is more than the 4 that fit on 2 machines with 5 CPUs" in line


READS = """
import os
from pathlib import Path

import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv

def read():
    pole = Path(os.environ["VOLLEY_INPUT_POLES"], "pole.txt")
    assert pole.read_text() == "long"
    assert [path for path in (pole, *pole.parents[:1]) if path.stat().st_mode & 0o222] == []
    return CartPoleEnv()

gymnasium.register("Reads-v0", read, max_episode_steps=500)
"""


@dataclass(frozen=True)
class Searched:
    """A search on the cluster in an environment of its own, which has inputs."""

    output: str
    status: RunStatus
    folder: Path


@pytest.fixture(scope="module")
def searched(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Searched:
    folder = tmp_path_factory.mktemp("searched")
    (folder / "source").mkdir()
    (folder / "source/reads.py").write_text(READS)
    (folder / "poles").mkdir()
    (folder / "poles/pole.txt").write_text("long")
    (folder / "reads.yaml").write_text(
        "env: reads:Reads-v0\nsource_directory: source\ninputs: {poles: poles}\n"
    )
    config = TINY.replace('"num_workers": 1', '"lr": {"grid_search": [1e-3, 1e-4]}')
    stop, status = '{"training_iteration": 2}', folder / "status.json"
    options = ("--address", cluster.address, "--config", config, "--status", str(status))
    done = payload(folder, "tune", "reads.yaml", *options, "--stop", stop)
    assert done.returncode == 0, done.stdout + done.stderr
    return Searched(done.stdout, RunStatus.read(status), run_folder(folder))


def test_the_trials_of_a_search_share_the_cluster(searched: Searched) -> None:
    # Of five CPUs each trial has one for its own process.
    assert "2 trials of 1 env runners each" in searched.output


def test_a_search_finishes_in_an_environment_whose_inputs_are_read_only(
    searched: Searched,
) -> None:
    assert "FINISHED: 2 trials are over\n" in searched.output
    assert searched.status == RunStatus("FINISHED", str(searched.folder), "2 trials are over")


def test_a_node_that_lacks_what_the_environment_needs_is_named(
    cluster: Cluster,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = tmp_path_factory.mktemp("bin") / "volley-window"
    program.write_text('#!/bin/sh\nexec "$@"\n')
    program.chmod(0o755)
    # Of this machine's processes only the driver finds it.
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    experiment = tmp_path_factory.mktemp("experiment") / "window.yaml"
    experiment.write_text("env: CartPole-v1\nrun_under: volley-window\n")
    line = refusal(tmp_path, cluster.address, str(experiment))
    assert line.startswith("payload: run_under: volley-window is not on the PATH of this machine (")


# Two trainings share the cluster: the first one has all CPUs, and then gives one of them away.


@dataclass(frozen=True)
class Shared:
    """What the second training says and how it ends: stopped while it waits, and once more."""

    stopped: tuple[int, str]
    output: str


@pytest.fixture(scope="module")
def shared(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Shared:
    first, second = (tmp_path_factory.mktemp(name) for name in ("first", "second"))
    options = ("--address", cluster.address, "--env-runners", "env_runners")
    (first / "env_runners").write_text("5")
    (second / "env_runners").write_text("2")
    train = (sys.executable, "-m", "payload", "train", "--env", "CartPole-v1", "--config", TINY)
    with learning(first, "--env", "CartPole-v1", *options):
        with running(second, *train, *options) as waiting:
            before = until(waiting, "Waiting for free CPUs")
            waiting.terminate()
            assert waiting.stdout is not None
            stopped = waiting.wait(timeout=60), before + waiting.stdout.read()
        with running(second, *train, *options) as process:
            output = until(process, "Waiting for free CPUs")
            (first / "env_runners").write_text("4")
            output += until(process, "env runners 1/2")
            process.terminate()
    return Shared(stopped, output)


def until(process: subprocess.Popen[str], words: str) -> str:
    """What a process says up to a line with these words."""
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if words in line:
            return said
    raise AssertionError(said)


def test_a_training_without_room_waits_until_there_is_some(shared: Shared) -> None:
    assert "env runners 1/2" in shared.output


def test_a_training_that_waits_for_room_can_be_stopped(shared: Shared) -> None:
    code, output = shared.stopped
    assert code == 143, output
    assert "KILLED: stopped by SIGTERM" in output


# A node with an env runner goes away while it trains, and another one comes.


@dataclass(frozen=True)
class Survivor:
    """A run that lost a node and got another, and was then stopped with Ctrl-C."""

    exit_code: int
    output: str
    seconds_before: float
    """For 1,000 steps with both env runners."""
    seconds_after: float
    """For 1,000 steps with the one that was left, soon after the loss."""


@pytest.fixture(scope="module")
def survivor(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Survivor:
    folder = tmp_path_factory.mktemp("survivor")
    arguments = ("--address", cluster.address, "--config", TWO_ENV_RUNNERS)
    with learning(folder, *arguments, "--stop", '{"time_total_s": 180}') as process:
        output = process.stdout
        assert output is not None
        before = seconds_for_1000_steps(folder)
        (node,) = cluster.worker_nodes
        cluster.remove_node(node, allow_graceful=False)
        next(line for line in output if "env runners 1/2" in line)
        after = seconds_for_1000_steps(folder)
        cluster.add_node(num_cpus=2)
        next(line for line in output if "env runners 2/2" in line)
        process.send_signal(signal.SIGINT)
        rest = output.read()
        return Survivor(process.wait(timeout=120), rest, before, after)


def seconds_for_1000_steps(folder: Path) -> float:
    """Measures from one iteration on: until then some of the steps are not counted yet."""
    iterations = len(steps(folder))
    wait_for(lambda: len(steps(folder)) > iterations)
    start, steps_then = time.monotonic(), steps(folder)[-1]
    wait_for(lambda: steps(folder)[-1] > steps_then + 1000)
    return time.monotonic() - start


def test_a_run_on_two_nodes_outlives_one_of_them(survivor: Survivor) -> None:
    assert survivor.exit_code == 130, survivor.output


def test_a_run_on_two_nodes_continues_at_once_with_what_is_left(survivor: Survivor) -> None:
    # With RLlib's default timeout for the ping of a lost env runner it is 80 times as long.
    assert survivor.seconds_after < 20 * survivor.seconds_before, survivor.output


# The head goes away: the last tests of this file, since the cluster does not outlive it.


@dataclass(frozen=True)
class Headless:
    """A run whose cluster lost its head."""

    exit_code: int
    output: str
    status: str
    """In MLflow."""


@pytest.fixture(scope="module")
def headless(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Headless:
    folder = tmp_path_factory.mktemp("headless")
    with learning(folder, "--address", cluster.address, "--checkpoint-every", "1") as process:
        wait_for(lambda: list((run_folder(folder) / "checkpoints").glob("checkpoint_*")))
        (gcs,) = cluster.head_node.all_processes["gcs_server"]
        gcs.process.kill()
        assert process.stdout is not None
        output = process.stdout.read()
        code = process.wait(timeout=120)
        return Headless(code, output, mlflow_run(folder).info.status)


def test_a_run_whose_cluster_lost_its_head_fails_before_ray_aborts_it(headless: Headless) -> None:
    # Aborted by Ray, after 60 s, it would have a signal's exit code and be RUNNING.
    assert (headless.exit_code, headless.status) == (1, "FAILED"), headless.output


def test_a_run_whose_cluster_lost_its_head_names_its_last_checkpoint(headless: Headless) -> None:
    assert "FAILED: Ray's head is gone" in headless.output
    assert "Last checkpoint" in headless.output
