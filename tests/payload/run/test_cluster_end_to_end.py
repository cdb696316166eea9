"""A run that joins an existing Ray cluster of two nodes with --address.

The cluster requires a token, as volley's own does. The last training ends with its head.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from ray.cluster_utils import Cluster

from payload.run.run_status import RunStatus
from tests.conda_channel import write_channel
from tests.payload.command_line import (
    TINY,
    in_process,
    learning,
    mlflow_run,
    run_folder,
    steps,
    wait_for,
    wait_for_line,
    with_database,
)
from tests.payload.run.token_cluster import token, token_cluster

pytestmark = pytest.mark.slow

TWO_CPUS = TINY.replace('"num_workers": 1', '"num_workers": 2, "num_cpus_per_worker": 2')
LONG = ("--stop", '{"time_total_s": 600}', "--checkpoint-every", "5")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home directory of Ray's user, where machines keep conda packages."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def cluster(home: Path) -> Iterator[Cluster]:
    """A cluster with room for one env runner of two CPUs on each node, and for the driver."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("HOME", str(home))
        environment.delenv("RATTLER_CACHE_DIR", raising=False)
        with token_cluster(head_cpus=3, node_cpus=2) as cluster:
            yield cluster


def refusal(folder: Path, address: str, *arguments: str) -> str:
    """Returns the one line that refuses a run at this address; the run leaves nothing behind."""
    done = in_process(folder, "train", "--address", address, *arguments)
    assert done.returncode == 2, done.stdout + done.stderr
    assert not list(folder.iterdir())
    (line,) = done.stderr.splitlines()
    return line


def test_an_invalid_address_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path, "ray://head:10001") == (
        "payload: --address ray://head:10001: is neither auto nor HOST:PORT"
    )


def test_an_address_where_nothing_answers_is_refused(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
        assert "no Ray cluster answers (Connection refused)" in refusal(tmp_path, address)


def test_a_token_that_the_cluster_does_not_know_is_refused(
    cluster: Cluster, tmp_path: Path
) -> None:
    with token():
        assert "the cluster asks for its own token" in refusal(tmp_path, cluster.address)


def test_more_env_runners_than_the_cluster_has_cpus_are_refused(
    cluster: Cluster, tmp_path: Path
) -> None:
    line = refusal(tmp_path, cluster.address, "--config", '{"num_workers": 5}')
    assert "config.num_env_runners: 5 is more than the 4 that fit on 2 machines with 5 CPUs" in line


READS = """
import os
import subprocess
import time
from pathlib import Path

import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv

def read():
    import greetlib

    assert subprocess.check_output(["greet"], text=True) == "hello world\\n"
    assert greetlib.__file__.startswith(os.environ["CONDA_PREFIX"])
    pole = Path(os.environ["VOLLEY_INPUT_POLES"], "pole.txt")
    assert pole.read_text() == "long"
    assert [path for path in (pole, *pole.parents[:1]) if path.stat().st_mode & 0o222] == []
    return Slow(CartPoleEnv())

class Slow(gymnasium.Wrapper):
    def step(self, action):
        time.sleep(0.02)  # The tests wait for other things than samples.
        return super().step(action)

gymnasium.register("Reads-v0", read, max_episode_steps=500)
"""


@dataclass(frozen=True)
class Searched:
    """A search on the cluster in a user's own environment, which has inputs."""

    output: str
    status: RunStatus
    folder: Path


@pytest.fixture(scope="module")
def searched(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Searched:
    folder = with_environment(tmp_path_factory.mktemp("searched"))
    search = '"num_workers": 0, "lr": {"grid_search": [1e-3, 1e-4]}'
    config = TINY.replace('"num_workers": 1', search)
    stop, status = '{"training_iteration": 2}', folder / "status.json"
    options = ("--address", cluster.address, "--config", config, "--status", str(status))
    done = in_process(folder, "tune", "reads.yaml", *options, "--stop", stop)
    assert done.returncode == 0, done.stdout + done.stderr
    return Searched(done.stdout, RunStatus.read(status), run_folder(folder))


def with_environment(folder: Path) -> Path:
    """Writes an experiment with a user's own environment into a folder."""
    (folder / "source").mkdir()
    (folder / "source/reads.py").write_text(READS)
    (folder / "poles").mkdir()
    (folder / "poles/pole.txt").write_text("long")
    (folder / "reads.yaml").write_text(
        "env: reads:Reads-v0\nsource_directory: source\ninputs: {poles: poles}\n"
        "conda_packages: [greeter]\nconda_dependencies_file: environment.yml\n"
    )
    channel = write_channel(folder / "channel")
    file = f"channels: ['{channel}']\ndependencies: [greetlib]\n"
    (folder / "environment.yml").write_text(file)
    return with_database(folder)


def test_the_trials_of_a_search_share_the_cluster(searched: Searched) -> None:
    # Each trial samples in its own process.
    assert "2 trials of 0 env runners each" in searched.output


def test_a_search_finishes_in_an_environment_whose_inputs_are_read_only(
    searched: Searched,
) -> None:
    assert "FINISHED: 2 trials are over\n" in searched.output
    status = searched.status
    assert (status.state, status.reason) == ("FINISHED", "2 trials are over")
    assert (status.run, bool(status.mlflow_run)) == (str(searched.folder), True)


@pytest.mark.usefixtures("searched")
def test_conda_packages_are_installed_once_a_machine(home: Path) -> None:
    # Both nodes of this cluster are one machine.
    (prefix,) = home.glob(".cache/volley/conda-*")
    assert (prefix / "bin/greet").exists()


def test_a_node_that_lacks_what_the_environment_needs_is_named(
    cluster: Cluster,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = tmp_path_factory.mktemp("bin") / "volley-window"
    program.write_text('#!/bin/sh\nexec "$@"\n')
    program.chmod(0o755)
    # Only the driver finds it; Ray's processes do not.
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    experiment = tmp_path_factory.mktemp("experiment") / "window.yaml"
    experiment.write_text("env: CartPole-v1\nrun_under: volley-window\n")
    line = refusal(tmp_path, cluster.address, str(experiment))
    assert line.startswith("payload: run_under: volley-window is not on the PATH of this machine (")


# Two trainings share the cluster; it loses a node, and finally its head.


@dataclass(frozen=True)
class Shared:
    """A training that has all CPUs, and a second one that waits until it gets some of them.

    When the second is over, the first gets them back, loses a node and gets another. Then the
    cluster's GCS is killed.
    """

    stopped: subprocess.CompletedProcess[str]
    """The second training, which was stopped while it waited."""
    second: subprocess.CompletedProcess[str]
    """The second training, started again and stopped while it trained."""
    exit_code: int
    """Exit code of the first training."""
    output: str
    mlflow_status: str
    seconds_before: float
    """Time for 100 steps with both env runners."""
    seconds_after: float
    """Time for 100 steps with the remaining env runner, soon after the loss of a node."""
    after_the_return: str
    """The first training's output from the return of a node until an env runner ran on it."""


@pytest.fixture(scope="module")
def shared(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Shared:
    first, second = (tmp_path_factory.mktemp(name) for name in ("first", "second"))
    file = first / "env_runners"
    file.write_text("2")
    (with_database(second) / "env_runners").write_text("2")
    options = ("--address", cluster.address, "--config", TWO_CPUS, "--env-runners", "env_runners")

    def stop_while_it_waits(output: Path) -> None:
        wait_for_line(output, "Waiting for free CPUs")
        os.kill(os.getpid(), signal.SIGTERM)

    def make_room(output: Path) -> None:
        wait_for_line(output, "Waiting for free CPUs")
        file.write_text("1")
        wait_for_line(output, "env runners 1/2")
        os.kill(os.getpid(), signal.SIGTERM)

    with learning(with_environment(first), "reads.yaml", *options, *LONG) as process:
        stopped = in_process(second, "train", *options, meanwhile=stop_while_it_waits)
        trained = in_process(second, "train", *options, meanwhile=make_room)
        file.write_text("2")
        output = until(process, "Env runners: now 2")
        before = seconds_for_100_steps(first)
        (node,) = cluster.worker_nodes
        cluster.remove_node(node, allow_graceful=False)
        output += until(process, "env runners 1/2")
        after = seconds_for_100_steps(first)
        cluster.add_node(num_cpus=2)
        after_the_return = until(process, "env runners 2/2")
        (gcs,) = cluster.head_node.all_processes["gcs_server"]
        gcs.process.kill()
        output += after_the_return + process.communicate(timeout=120)[0]
    return Shared(
        stopped=stopped,
        second=trained,
        exit_code=process.returncode,
        output=output,
        mlflow_status=mlflow_run(first).info.status,
        seconds_before=before,
        seconds_after=after,
        after_the_return=after_the_return,
    )


def until(process: subprocess.Popen[str], words: str) -> str:
    """Returns a process's output up to a line with these words."""
    assert process.stdout is not None
    output = ""
    for line in process.stdout:
        output += line
        if words in line:
            return output
    raise AssertionError(output)


def seconds_for_100_steps(folder: Path) -> float:
    """Measures from the next iteration on: before that, some steps are not counted yet."""
    iterations = len(steps(folder))
    wait_for(lambda: len(steps(folder)) > iterations)
    start, steps_then = time.monotonic(), steps(folder)[-1]
    wait_for(lambda: steps(folder)[-1] > steps_then + 100)
    return time.monotonic() - start


def test_a_training_that_waits_for_room_can_be_stopped(shared: Shared) -> None:
    assert shared.stopped.returncode == 143, shared.stopped.stdout
    assert "KILLED: stopped by SIGTERM" in shared.stopped.stdout


def test_a_training_without_room_waits_until_there_is_some(shared: Shared) -> None:
    assert shared.second.returncode == 143, shared.second.stdout
    assert "env runners 1/2" in shared.second.stdout


def test_a_training_shrinks_and_grows_with_the_number_in_the_file(shared: Shared) -> None:
    lines = [line for line in shared.output.splitlines() if line.startswith("Env runners")]
    assert lines == [
        "Env runners: now 1 (were 2, target 1)",
        "Env runners: now 2 (were 1, target 2)",
    ]


def test_a_node_that_comes_has_an_env_runner_of_the_run_that_lost_one(shared: Shared) -> None:
    assert "was lost and is back" in shared.after_the_return


def test_a_run_on_two_nodes_continues_at_once_with_what_is_left(shared: Shared) -> None:
    # RLlib's default timeout for the ping of a lost env runner makes it 80 times as long.
    assert shared.seconds_after < 20 * shared.seconds_before, shared.output


def test_a_run_without_gcs_fails_before_ray_aborts_it(shared: Shared) -> None:
    # If Ray aborted it, its exit code would be a signal's, and MLflow would show RUNNING.
    assert (shared.exit_code, shared.mlflow_status) == (1, "FAILED"), shared.output


def test_a_run_without_gcs_names_its_last_checkpoint(shared: Shared) -> None:
    (line,) = [line for line in shared.output.splitlines() if line.startswith("FAILED")]
    assert "GCS" in line
    assert "Last checkpoint" in shared.output
