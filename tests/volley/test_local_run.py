"""`volley.train`: a training in a process of its own, as a program or a notebook sees it."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import volley
from payload.run.run_status import RunStatus
from tests.documents import document
from tests.payload.command_line import SLOW, wait_for, with_database
from volley.experiment_arguments import experiment_of
from volley.local_run import LocalRun, end_all
from volley.run_html import run_html


@pytest.fixture(scope="module", autouse=True)
def no_run_is_left() -> Iterator[None]:
    yield
    end_all()


def refusal(*arguments: Any, **keys: Any) -> str:
    with pytest.raises(volley.UserError) as error:
        volley.train(*arguments, **keys)
    return str(error.value)


def test_everything_that_a_run_does_is_documented() -> None:
    documented = re.findall(r"^\| `(\w+)(?:\(\))?` \|", document("docs/python.md"), re.MULTILINE)
    public = {name for name in dir(volley.Run) if not name.startswith("_")}
    assert set(documented) == public


# Before a process starts: these tests are quick ones, which may not start one.


def test_a_wrong_setting_is_told_with_the_nearest_before_anything_starts() -> None:
    said = refusal(env="CartPole-v1", run="PPO", lrr=0.1)
    assert said.startswith("config.lrr: unknown key (did you mean lr?)")


def test_a_wrong_key_of_an_experiment_is_told_with_the_nearest() -> None:
    assert refusal(envv="CartPole-v1") == "envv: unknown key (did you mean env?)"


def test_a_missing_file_is_told_with_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "pong.yaml").touch()
    said = refusal(tmp_path / "pogn.yaml")
    assert said.endswith("No such file or directory (did you mean pong.yaml?)")


def test_training_without_ray_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert refusal(env="CartPole-v1") == "Ray is not installed. Next: make .venv/payload"


def test_keywords_replace_what_a_file_or_a_dict_says(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("run: PPO\nenv: CartPole-v1\nconfig: {lr: 0.1, gamma: 0.9}\n")
    for given in (file, str(file), {"run": "PPO", "config": {"lr": 0.1, "gamma": 0.9}}):
        read = experiment_of(given, {"lr": 0.2, "stop": {"training_iteration": 3}})
        settings = read.config.model_dump(exclude_unset=True)
        assert (read.run, settings) == ("PPO", {"lr": 0.2, "gamma": 0.9})
        assert read.stop.training_iteration == 3


def test_an_older_name_is_translated_before_the_eyes_of_the_user(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert experiment_of(None, {"num_workers": 2}).config.num_env_runners == 2
    assert "config.num_workers is now num_env_runners: 2\n" in capsys.readouterr().out


def test_a_path_may_be_a_path(tmp_path: Path) -> None:
    read = experiment_of(None, {"source_directory": tmp_path, "inputs": {"maps": tmp_path}})
    assert (read.source_directory, read.inputs) == (str(tmp_path), {"maps": str(tmp_path)})


def test_the_text_of_a_run_is_not_markup() -> None:
    status = RunStatus("FAILED", "", "<script>alert(1)</script>")
    page = run_html("<b>x", status, note="a & b")
    assert "<script>" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "<b>&lt;b&gt;x</b>" in page
    assert "a &amp; b" in page


# One training, which is interrupted


@dataclass(frozen=True)
class Interrupted:
    """A run whose `wait` was interrupted while it trained, in a program without a notebook."""

    run: LocalRun
    first: RunStatus
    """Right after the start."""
    refused: dict[str, str]
    """What methods said before the run had a folder."""
    page: str
    """As a notebook shows it while it trains."""
    in_own_group: bool
    """Whether the training had a process group of its own."""


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Interrupted:
    folder = with_database(tmp_path_factory.mktemp("interrupted"))
    source = SLOW[SLOW.index("--source-directory") + 1]
    with chdir(folder):
        run = volley.train(
            run="PPO",
            env="slow:Slow-v0",
            source_directory=source,
            num_env_runners=0,
            train_batch_size_per_learner=100,
            minibatch_size=50,
            num_epochs=1,
            min_time_s_per_iteration=0,
            stop={"time_total_s": 600, "env_runners/episode_return_mean": 1000},
            notify=f"cat > {folder / 'told'} # https://chat/T0KEN",
        )
    first, refused = run.status, {}
    for name in ("plot", "pull", "checkpoints", "watch"):
        with pytest.raises(volley.UserError) as error:
            getattr(run, name)()
        refused[name] = str(error.value)
    assert run.metrics().empty
    wait_for(lambda: run.status.state == "TRAINING" and not run.metrics().empty)
    page = run._repr_html_()
    in_own_group = os.getpgid(run._process.pid) != os.getpgrp()
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        run.wait()
    return Interrupted(run, first, refused, page, in_own_group)


@pytest.mark.slow
def test_train_returns_at_once(interrupted: Interrupted) -> None:
    assert interrupted.first == RunStatus("STARTING", "")


@pytest.mark.slow
def test_what_is_not_there_yet_is_told_in_a_line(interrupted: Interrupted) -> None:
    name = "PPO on slow:Slow-v0"
    no_folder = f"{name}: STARTING, so it has no folder yet"
    assert interrupted.refused == {
        "plot": f"{name}: no iteration is over, so there is no curve yet",
        "pull": no_folder,
        "checkpoints": no_folder,
        "watch": "watch() needs a notebook. Next: logs(follow=True)",
    }


@pytest.mark.slow
def test_an_interrupted_wait_stops_the_training_after_a_checkpoint(
    interrupted: Interrupted,
) -> None:
    run = interrupted.run
    assert (run.status.state, run.status.reason) == ("KILLED", "stopped by SIGINT")
    assert run.wait() == run.stop() == run.status
    assert [path.name[:11] for path in run.checkpoints()] == ["checkpoint_"]
    assert Path(run.status.run).name == run.name


@pytest.mark.slow
def test_an_interrupt_of_another_cell_does_not_reach_the_training(
    interrupted: Interrupted,
) -> None:
    """A notebook's server sends it to the kernel's whole process group."""
    assert interrupted.in_own_group


@pytest.mark.slow
def test_a_run_that_trains_shows_state_goal_and_curve(interrupted: Interrupted) -> None:
    assert "TRAINING" in interrupted.page
    assert "<th>goal</th>" in interrupted.page
    assert "<td>1,000</td>" in interrupted.page
    assert "data:image/png;base64," in interrupted.page


@pytest.mark.slow
def test_logs_print_the_last_lines_and_end_with_the_run(
    interrupted: Interrupted, capsys: pytest.CaptureFixture[str]
) -> None:
    interrupted.run.logs(follow=True, lines=1)
    interrupted.run.logs()
    last, *every = capsys.readouterr().out.splitlines()
    assert last == every[-1]
    assert "KILLED: stopped by SIGINT" in every


@pytest.mark.slow
def test_its_end_is_told_and_its_file_has_no_url(interrupted: Interrupted) -> None:
    run = interrupted.run.pull()
    told = json.loads((run.parents[2] / "told").read_text())
    assert (told["name"], told["state"]) == (run.name, "KILLED")
    assert "notify: $VOLLEY_NOTIFY" in (run / "experiment.yaml").read_text()


@pytest.mark.slow
def test_pull_copies_a_run_to_another_folder(interrupted: Interrupted, tmp_path: Path) -> None:
    assert interrupted.run.pull() == Path(interrupted.run.status.run)
    copy = interrupted.run.pull(tmp_path / "copy")
    assert (copy / "progress.csv").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "method"), [("pandas", "metrics"), ("matplotlib", "plot")], ids=["pandas", "plot"]
)
def test_a_method_that_needs_a_package_says_what_to_install(
    interrupted: Interrupted, module: str, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(volley.UserError) as error:
        getattr(interrupted.run, method)()
    assert str(error.value) == f"{module} is not installed. Next: make .venv/payload"
    page = interrupted.run._repr_html_()
    assert ("<img" in page) == (module != "matplotlib")


@pytest.mark.slow
def test_what_the_command_refuses_is_raised_with_its_line(tmp_path: Path) -> None:
    with chdir(tmp_path):
        run = volley.train({"run": "PPO", "env": "NoSuch-v0", "stop": {"time_total_s": 1}})
    with pytest.raises(volley.UserError, match=r"^env: NoSuch-v0"):
        run.wait()
    assert run.status.state == "FAILED"
    assert list(tmp_path.iterdir()) == []
