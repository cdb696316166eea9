"""The queue on a real Ray cluster of two CPUs: experiments share it, wait, stop and continue."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from mlflow.entities import Run
from ray.cluster_utils import Cluster
from ray.job_submission import JobSubmissionClient

from head.queue.ray_api import RayCluster
from payload.tracking.script_runs import SUBMISSION
from tests.container_registry import Images, registry_with_images, why_not
from tests.head.queue.queue_head import Head, script, slow_cartpole
from tests.notebook import Executed
from tests.payload.command_line import tracked_runs, wait_for
from tests.volley.conftest import Laptop, outputs_of
from tests.volley.head import WHY_NOT, LocalHead

pytestmark = pytest.mark.slow

COUNTING = """
import os, sys, time
from pathlib import Path

import mlflow, ray
from square import square

ray.init()
answer = ray.get(ray.remote(square).remote(7))
print("answer", answer, *sys.argv[1:], os.environ["LEVEL"])
mlflow.start_run(run_name="counting")
with Path(os.environ["VOLLEY_RESULTS"], "starts").open("a") as file:
    file.write("started\\n")
time.sleep(600)
"""
"""A script that never ends, and counts its starts."""
OLD = "import sys\nprint('old')\nimport gym\n"
IN_IMAGE = """
import maze, ray
ray.init()
print("maze", maze.SIZE, ray.get(ray.remote(lambda: maze.SIZE).remote()), flush=True)
"""
"""A script whose module is in a container image."""
REFUSED = "env: NoSuchEnvironment-v0\nconfig: {num_env_runners: 0}\n"


@dataclass(frozen=True)
class Afternoon:
    """The history of a queue with three experiments that was killed, replaced and stopped."""

    head: Head
    queued: dict[str, Any]
    """The record of the third experiment while the other two trained."""
    states_then: dict[str, str]
    drivers: list[int]
    """Drivers of other programs, before and after one starts a job and another connects."""
    first_job: tuple[str, int]
    """The first experiment's job and attempts before the queue was killed."""
    followed_job: tuple[str, int]
    """The same, after the next queue and its new version have taken over."""
    stop_answers: list[dict[str, Any]]
    """The answers for the first experiment, which is stopped twice and resumed."""
    refused: dict[str, Any]
    """The final record of the third experiment, which the payload rejects."""
    state_at_stop: str
    """The first experiment's state after systemd stopped the queue."""
    checkpoints_at_stop: int


@pytest.fixture(scope="module", autouse=True)
def images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Images | None]:
    """A registry, from before Ray starts; None where containers cannot run."""
    if why_not():
        yield None
        return
    with registry_with_images(tmp_path_factory.mktemp("registry")) as made:
        yield made


@pytest.fixture(scope="module")
def afternoon(ray_with_dashboard: Cluster, cluster_head: Head) -> Afternoon:
    head = cluster_head

    def attempt(name: str) -> tuple[str, int]:
        record = head.record(name)
        return record["job"], record["attempts"]

    def trains_on(name: str) -> None:
        steps = head.steps(name)
        head.until(lambda: head.steps(name) > steps, f"more steps of {name}")

    with head.running() as queue:
        head.submit("first", slow_cartpole())
        head.submit("second", slow_cartpole())
        head.submit("third", REFUSED)
        head.wait_for("first", "TRAINING")
        head.wait_for("second", "TRAINING")
        queued, states = head.record("third"), head.states()
        drivers = drivers_with_other_programs(head, ray_with_dashboard)
        first_job = attempt("first")
        queue.send_signal(signal.SIGKILL)
        queue.wait()
    written = head.cluster_file.stat().st_mtime_ns
    with head.running() as queue:
        head.until(lambda: head.cluster_file.stat().st_mtime_ns > written, "the next queue")
        trains_on("first")
        queue.send_signal(signal.SIGHUP)
        head.until(lambda: "loading the new version" in head.journal, "the new version")
        trains_on("first")
        followed_job = attempt("first")
        answers = [head.ask("stop", "first"), head.ask("stop", "first")]
        head.wait_for("third", "FAILED")
        answers.append(head.ask("resume", "first"))
        head.wait_for("first", "TRAINING")
        head.ask("stop", "second")
    state, checkpoints = head.record("first")["state"], len(checkpoints_of(head, "first"))
    with head.running():
        head.wait_for("first", "TRAINING")
        head.ask("stop", "first")
    return Afternoon(
        head,
        queued,
        states,
        drivers,
        first_job,
        followed_job,
        answers,
        head.record("third"),
        state,
        checkpoints,
    )


def drivers_with_other_programs(head: Head, ray: Cluster) -> list[int]:
    """Starts a Ray job and connects a program; returns how many drivers the queue counted."""

    def drivers() -> int:
        return int(json.loads(head.cluster_file.read_text())["drivers"])

    counts = [drivers()]
    client = JobSubmissionClient(f"http://{ray.webui_url}")
    job = client.submit_job(entrypoint="sleep 100")
    connect = f"import ray, time; ray.init({ray.address!r}); time.sleep(100)"
    with subprocess.Popen([sys.executable, "-c", connect]) as driver:
        head.until(lambda: drivers() == 2, "two drivers")
        counts.append(drivers())
        driver.kill()
    client.stop_job(job)
    head.until(lambda: drivers() == 0, "no driver")
    return counts


def runs(head: Head, name: str) -> list[Path]:
    """Returns the run folders of an experiment."""
    return list((head.root / "var/lib/volley/runs" / head.record(name)["key"] / "runs").glob("*"))


def checkpoints_of(head: Head, name: str) -> list[Path]:
    return [path for run in runs(head, name) for path in run.glob("checkpoints/checkpoint_*")]


def test_two_experiments_share_the_cpus_and_a_third_waits(afternoon: Afternoon) -> None:
    states = {"first": "TRAINING", "second": "TRAINING", "third": "QUEUED"}
    assert afternoon.states_then == states
    assert afternoon.queued["reason"] == "waiting for CPUs or GPUs in use by first, second"
    assert afternoon.queued["attempts"] == 0


def test_a_waiting_experiment_starts_when_another_one_ends(afternoon: Afternoon) -> None:
    journal = afternoon.head.journal
    assert re.search(r"^third: FAILED: \S", journal, re.MULTILINE)
    assert re.search(r"^second: Training started after", journal, re.MULTILINE)
    assert afternoon.head.record("second")["attempts"] == 1


def test_ray_jobs_of_other_programs_are_counted(afternoon: Afternoon) -> None:
    """They keep an idle cluster from going to sleep."""
    assert afternoon.drivers == [0, 2]


def test_nothing_runs_twice_when_the_queue_is_killed_or_replaced(afternoon: Afternoon) -> None:
    assert afternoon.followed_job == afternoon.first_job
    assert afternoon.first_job[1] == 1


def test_an_experiment_is_stopped_once_and_resumed(afternoon: Afternoon) -> None:
    stopped, again, resumed = afternoon.stop_answers
    assert stopped == {"name": "first", "state": "STOPPED", "position": None}
    assert (again["state"], resumed["state"]) == ("STOPPED", "QUEUED")


def test_a_stopped_queue_stops_its_experiments_with_a_checkpoint(afternoon: Afternoon) -> None:
    assert afternoon.state_at_stop == "STARTING"
    assert afternoon.checkpoints_at_stop
    assert "KILLED: stopped by SIGTERM" in afternoon.head.output("first")


def test_a_run_continues_after_a_stop_and_after_a_restart_of_the_queue(
    afternoon: Afternoon,
) -> None:
    assert len(runs(afternoon.head, "first")) == 1
    assert afternoon.head.output("first").count("Resumed from") == 2


def test_what_the_payload_refuses_is_not_tried_again(afternoon: Afternoon) -> None:
    assert afternoon.refused["attempts"] == 1
    assert afternoon.refused["reason"].startswith("payload: env: NoSuchEnvironment-v0")


def test_a_node_that_has_gone_away_is_not_counted(
    ray_with_dashboard: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", f"http://{ray_with_dashboard.webui_url}")
    seen = RayCluster()
    node = ray_with_dashboard.add_node(num_cpus=3)
    wait_for(lambda: [node.cpus for node in seen.nodes()] == [2, 3])
    ray_with_dashboard.remove_node(node)
    wait_for(lambda: [node.cpus for node in seen.nodes()] == [2])


# Scripts


@dataclass(frozen=True)
class Scripts:
    """The history of two scripts: one outlives its queue and is stopped, one fails."""

    head: Head
    shown: dict[str, Any]
    """What `status` answered of the first one while it ran."""
    waiting: dict[str, Any]
    """The record of the second one then."""
    results: Path
    """The first one's VOLLEY_RESULTS."""
    mlflow_runs: list[Run]


@pytest.fixture(scope="module")
def scripts(afternoon: Afternoon, mlflow_database: str, images: Images | None) -> Scripts:
    head = afternoon.head
    needs = {"num_cpus": 2, "environment_variables": {"LEVEL": "hard"}}

    def starts() -> int:
        return sum(path.read_text().count("started") for path in files_of(head, "starts"))

    with head.running():
        head.submit("counting", script(COUNTING, script_params={"--run": "a b"}, **needs))
        head.submit("old", script(OLD))
        head.until(lambda: starts() == 1, "the first start")
        head.wait_for("counting", "RUNNING")
        head.until(lambda: head.record("old")["reason"], "a reason to wait")
        (shown,) = head.ask("status", "--name", "counting")["experiments"]
        waiting = head.record("old")
    with head.running():
        head.until(lambda: starts() == 2, "the second start")
        head.ask("stop", "counting")
        head.wait_for("old", "FAILED")
        if images is not None:
            (allowed := head.root / "etc/sysctl.d/60-containers.conf").parent.mkdir(parents=True)
            allowed.touch()
            head.submit("in-image", script(IN_IMAGE, image=images.maze))
            head.wait_for("in-image", "FINISHED", "FAILED")
    (results,) = {path.parent for path in files_of(head, "starts")}
    runs = [run for run in tracked_runs(mlflow_database) if run.info.run_name == "counting"]
    return Scripts(head, shown, waiting, results, runs)


def files_of(head: Head, name: str) -> list[Path]:
    """Returns the files of this name in the scripts' output."""
    return list((head.root / "var/lib/volley/runs").glob(f"*/runs/*/output/{name}"))


def test_a_script_runs_on_the_cluster_with_its_own_modules_and_variables(scripts: Scripts) -> None:
    assert scripts.head.output("counting").count("answer 49 --run a b hard") == 2


def test_a_script_is_shown_as_one_and_has_its_cpus_for_itself(scripts: Scripts) -> None:
    shown = scripts.shown
    assert (shown["state"], shown["script"]) == ("RUNNING", True)
    assert shown["status"]["state"] == "RUNNING"
    assert scripts.waiting["reason"] == "waiting for CPUs or GPUs in use by counting"


def test_a_restarted_script_finds_its_earlier_results(scripts: Scripts) -> None:
    assert (scripts.results / "starts").read_text() == "started\nstarted\n"
    assert len(runs(scripts.head, "counting")) == 1


def test_a_stopped_script_is_stopped_and_so_are_its_mlflow_runs(scripts: Scripts) -> None:
    assert scripts.head.record("counting")["state"] == "STOPPED"
    tags = {run.data.tags[SUBMISSION] for run in scripts.mlflow_runs}
    assert tags == {scripts.results.parent.name}
    assert [run.info.status for run in scripts.mlflow_runs] == ["KILLED", "KILLED"]


def test_a_script_that_fails_is_not_tried_again_and_says_why(scripts: Scripts) -> None:
    record = scripts.head.record("old")
    assert (record["attempts"], record["reason"]) == (
        1,
        "ModuleNotFoundError: No module named 'gym'",
    )
    output = scripts.head.output("old")
    assert output.index("No module named 'gym'") < output.index("volley: gym is Gymnasium today")


@pytest.mark.skipif(bool(why_not()), reason=why_not())
def test_a_script_and_its_tasks_run_in_a_container_image(scripts: Scripts) -> None:
    assert scripts.head.record("in-image")["state"] == "FINISHED", scripts.head.output("in-image")
    output = scripts.head.output("in-image")
    assert re.search(r"^pulling .*/team/maze@sha256:\w+: 0 of 1 machines have it$", output, re.M)
    assert "maze 7 7\n" in output


# The notebook of a cluster


@dataclass(frozen=True)
class Notebook:
    """examples/cluster.ipynb, executed on a laptop whose stack has a head with a running queue."""

    executed: Executed
    head: LocalHead
    laptop: Laptop


@pytest.fixture(scope="module")
def notebook(
    tmp_path_factory: pytest.TempPathFactory, ray_with_dashboard: Cluster, mlflow_database: str
) -> Iterator[Notebook]:
    if WHY_NOT:
        pytest.skip(WHY_NOT)
    dashboard = f"http://{ray_with_dashboard.webui_url}"
    variables = {"RAY_API_SERVER_ADDRESS": dashboard, "MLFLOW_TRACKING_URI": mlflow_database}
    folder = tmp_path_factory.mktemp("notebook")
    head = LocalHead(folder / "head", variables)
    # A socket's path is short.
    with tempfile.TemporaryDirectory(prefix="v", dir="/tmp") as home:
        laptop = Laptop(folder / "laptop", Path(home))
        laptop.outputs(**outputs_of(head))
        head.start()
        with head.running():
            executed = Executed("cluster.ipynb", laptop.folder, laptop.environment)
        yield Notebook(executed, head, laptop)
        head.stop()


def test_a_notebook_trains_on_the_cluster_and_shows_the_run(notebook: Notebook) -> None:
    outputs = notebook.executed.outputs
    assert notebook.head.record("ppo-cartpole-v1")["state"] == "FINISHED"
    page = outputs("run.watch()")["text/html"]
    assert "<b>ppo-cartpole-v1</b>" in page
    assert "FINISHED" in page
    assert "data:image/png;base64,iVBOR" in page
    assert "state='FINISHED'" in outputs("run.wait()")["text/plain"]
    assert "<th>env_runners/episode_return_mean</th>" in outputs("run.metrics()")["text/html"]
    assert outputs("run.plot()")["image/png"].startswith("iVBOR")
    assert "\nFINISHED: " in outputs("run.logs")["stdout"]


def test_a_notebook_pulls_the_checkpoints_that_it_lists(notebook: Notebook) -> None:
    shown = notebook.executed.outputs("run.pull()")
    assert shown["stdout"] == "results/ppo-cartpole-v1\n"
    pulled = notebook.laptop.folder.glob("results/ppo-cartpole-v1/runs/*/checkpoints/checkpoint_*")
    names = [path.name for path in pulled]
    assert names
    assert all(name in shown["text/plain"] for name in names)
