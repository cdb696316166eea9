"""A training on a laptop tells its end once, whichever it is, and shows the URL nowhere."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from payload.notification import BY_QUEUE, VARIABLE
from tests.free_port import free_port
from tests.payload.command_line import in_process, with_database
from tests.receiver import PATH, Receiver, receiving
from volley.cli import main as volley

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ray_here")]

TRAIN = (
    *("train", "--run", "PPO", "--env", "CartPole-v1", "--name", "cart", "--config"),
    """{num_env_runners: 0, train_batch_size_per_learner: 200, minibatch_size: 100,
  num_epochs: 1, min_time_s_per_iteration: 0, fcnet_hiddens: [8]}""",
)
ONCE = (*TRAIN, "--stop", "{training_iteration: 1}")


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return with_database(tmp_path)


def test_a_url_is_told_the_end_and_kept_secret(folder: Path, receiver: Receiver) -> None:
    more = [word.replace("learner: 200", "learner: 3000") for word in ONCE]
    done = in_process(folder, *more, "--notify", receiver.url)
    assert done.returncode == 0, done.stdout + done.stderr
    (received,) = receiver.received
    assert (received["name"], received["env"], received["algorithm"]) == (
        "cart",
        "CartPole-v1",
        "PPO",
    )
    assert received["state"] == "FINISHED"
    assert 3000 <= received["steps"] < 3500
    assert received["reason"] == "limit of 1 iterations reached"
    assert received["best_return"] == received["last_return"] > 5
    run = json.loads((folder / "results/runs/cart/mlflow_run.json").read_text())
    assert received["run_id"] == run["run_id"]
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert [path for path in files if PATH.encode() in path.read_bytes()] == []
    assert PATH not in done.stdout + done.stderr
    assert f"Notified         http://127.0.0.1:{receiver.server.server_port}/***" in done.stdout


def test_a_run_that_is_stopped_and_resumed_tells_both_ends(folder: Path) -> None:
    command = 'cat > "told-$VOLLEY_STATE"'

    def stop(output: Path) -> None:
        while "Training started" not in output.read_text():
            time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGINT)

    stopped = in_process(folder, *TRAIN, "--notify", command, meanwhile=stop)
    assert stopped.returncode == 130, stopped.stdout
    told = json.loads((folder / "told-KILLED").read_text())
    assert told["reason"] == "stopped by SIGINT"
    assert told["steps"] > 0
    resume = ("train", "--resume", "--stop", "{training_iteration: 1}")
    assert in_process(folder, *resume).returncode == 0  # The run's file has the command.
    assert json.loads((folder / "told-FINISHED").read_text())["run_id"] == told["run_id"]


def test_a_url_that_is_away_fails_no_run(folder: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}{PATH}"
    done = in_process(folder, *ONCE, "--notify", url)
    assert done.returncode == 0
    assert "Nobody was notified: http://127.0.0.1:" in done.stdout
    assert PATH not in done.stdout


def test_what_the_queue_of_a_cluster_tells_the_driver_does_not(
    folder: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(BY_QUEUE, "1")
    assert in_process(folder, *ONCE, "--notify", receiver.url).returncode == 0
    assert receiver.received == []


def test_a_variable_that_is_not_set_is_told_before_anything_starts(folder: Path) -> None:
    refused = in_process(folder, *ONCE, "--notify", "$NO_SUCH")
    assert refused.returncode == 2
    assert "notify: $NO_SUCH is not set in the environment. Next: export NO_SUCH=" in refused.stderr
    assert not (folder / "results/runs").exists()


def test_a_script_tells_its_end(
    folder: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHAT", receiver.url)
    (folder / "fails.py").write_text(f"raise ValueError('no {PATH}')")
    (folder / "script.yaml").write_text("entry_script: fails.py\nnotify: $CHAT\nsecrets: [CHAT]\n")
    failed = in_process(folder, "run", "script.yaml", command=volley)
    assert failed.returncode == 1
    (received,) = receiver.received
    assert (received["state"], received["env"], received["steps"]) == ("FAILED", None, None)
    assert received["reason"] == f"ValueError: no {PATH}"
    assert VARIABLE not in (next(folder.glob("results/runs/*/script.yaml"))).read_text()


def test_several_seeds_tell_one_end(folder: Path, receiver: Receiver) -> None:
    done = in_process(folder, *ONCE, "--seeds", "2", "--notify", receiver.url)
    assert done.returncode == 0, done.stdout + done.stderr
    (received,) = receiver.received
    assert received["state"] == "FINISHED"
    assert 400 <= received["steps"] < 500
    assert received["reason"] == "2 trials are over"
    assert received["best_return"] > 5
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert [path for path in files if PATH.encode() in path.read_bytes()] == []
