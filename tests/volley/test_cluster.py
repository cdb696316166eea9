"""`volley.Cluster`: experiments and runs of a cluster, as a program or a notebook sees them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path, PurePosixPath

import pytest
import yaml

import volley
from payload.run.run_folder import RunFolder
from payload.run.run_status import RunStatus
from tests.payload.conftest import FIRST_REPORT
from tests.volley.conftest import Laptop
from tests.volley.head import LocalHead

pytestmark = pytest.mark.slow

CARTPOLE = {"run": "PPO", "env": "CartPole-v1", "stop": {"training_iteration": 3}}
RUN = "runs/PPO_CartPole-v1_2026-11-29_10-00-00"


@pytest.fixture
def cluster(connected: Laptop, monkeypatch: pytest.MonkeyPatch) -> volley.Cluster:
    """The cluster, from a program in the laptop's folder."""
    for name, value in connected.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(connected.folder)
    return volley.Cluster("dev")


@pytest.fixture
def trained(cluster: volley.Cluster, head: LocalHead) -> volley.Run:
    """An experiment that trains, with two iterations and two checkpoints."""
    folder = head.experiment("cart")
    place = head.run_file("cart", f"{RUN}/experiment.yaml", yaml.dump(CARTPOLE).encode()).parent
    for iteration in (1, 2):
        report = replace(
            FIRST_REPORT,
            iteration=iteration,
            env_steps=1000 * iteration,
            return_mean=20.0 * iteration,
        )
        RunFolder(place).append_progress(report)
        head.run_file("cart", f"{RUN}/checkpoints/checkpoint_00000{iteration}/weights", b"1")
    RunStatus("TRAINING", str(place), env_steps=2000, episode_return=40.0).write(
        folder / "status.json"
    )
    return cluster.run("cart")


@pytest.mark.usefixtures("cluster")
def test_a_stack_that_does_not_exist_is_told_with_the_nearest(connected: Laptop) -> None:
    with pytest.raises(volley.UserError) as error:
        volley.Cluster("dve")
    line = f"{error.value}"
    assert line == "--stack dve: no such stack (did you mean dev?). Next: pulumi stack ls"
    assert connected.volley("status", "--stack", "dve", code=2) == line


def test_keywords_and_dicts_are_queued_under_the_name_of_what_they_train(
    cluster: volley.Cluster, head: LocalHead
) -> None:
    run = cluster.submit({"run": "PPO", "config": {"lr": 0.1}}, env="CartPole-v1", lr=0.2)
    assert (run.name, run.status) == (
        "ppo-cartpole-v1",
        RunStatus("QUEUED", "", reason="position 1"),
    )
    sent = yaml.safe_load((head.experiments / run.name / "experiment.yaml").read_text())
    assert (sent["run"], sent["env"], sent["config"]) == ("PPO", "CartPole-v1", {"lr": 0.2})


def test_a_file_is_queued_as_it_is_and_with_keywords_under_the_same_name(
    cluster: volley.Cluster, head: LocalHead, experiment: Path
) -> None:
    run = cluster.submit(experiment)
    sent = head.experiments / "cart" / "experiment.yaml"
    assert (run.name, sent.read_bytes()) == ("cart", experiment.read_bytes())
    assert run.stop().state == "STOPPED"
    assert cluster.submit(str(experiment), num_env_runners=2, now=True).name == "cart"
    assert yaml.safe_load(sent.read_text())["config"]["num_env_runners"] == 2
    assert head.record("cart")["now"] is True


def test_a_script_is_queued_with_its_arguments(cluster: volley.Cluster, head: LocalHead) -> None:
    Path("main.py").write_text("import sys\n")
    for given in ("main.py", {"entry_script": "main.py"}):
        run = cluster.submit(given, num_cpus=2, script_params={"--run": "a b"})
        sent = yaml.safe_load((head.experiments / run.name / "experiment.yaml").read_text())
        assert run.name == "main"
        assert (sent["script_params"], sent["num_cpus"]) == (["--run", "a b"], 2)
        assert (head.experiments / "main/source/main.py").exists()


def test_what_the_command_refuses_is_raised_with_its_line(
    connected: Laptop, cluster: volley.Cluster, head: LocalHead
) -> None:
    file = Path("wrong.yaml")
    file.write_text("env: CartPole-v1\nconfig:\n  lrr: 0.1\n")
    with pytest.raises(volley.UserError) as error:
        cluster.submit(file)
    assert str(error.value) == connected.volley("submit", "wrong.yaml", code=2)
    with pytest.raises(volley.UserError, match=r"^source_directory: \S+/nowhere does not exist$"):
        cluster.submit(env="CartPole-v1", source_directory="nowhere")
    head.experiment("pong")
    with pytest.raises(volley.UserError) as error:
        cluster.run("pomg")
    assert str(error.value) == connected.volley("stop", "pomg", code=2)
    assert [path.name for path in head.experiments.glob("[a-z]*")] == ["pong"]


def test_a_run_has_its_metrics_by_environment_steps(trained: volley.Run) -> None:
    metrics = trained.metrics()
    assert list(metrics.index) == [1000, 2000]
    assert list(metrics["env_runners/episode_return_mean"]) == [20, 40]


def test_a_run_shows_its_state_figures_and_curve(trained: volley.Run) -> None:
    page = trained._repr_html_()
    assert "<b>cart</b>" in page
    assert "TRAINING" in page
    assert "<td>40</td><td>2,000</td>" in page
    assert "data:image/png;base64," in page
    axes = trained.plot().axes[0]
    assert list(axes.lines[0].get_ydata()) == [20, 40]


def test_a_head_that_is_gone_is_shown_and_breaks_no_page(
    trained: volley.Run, head: LocalHead
) -> None:
    head.stop()
    page = trained._repr_html_()
    assert page.startswith("<b>cart</b>\n<div>")
    assert "the head does not answer" in page


def test_checkpoints_are_named_newest_first_and_pulled(
    trained: volley.Run, head: LocalHead
) -> None:
    folder = PurePosixPath(head.root, "var/lib/volley/runs/cart-key", RUN, "checkpoints")
    assert trained.checkpoints() == [folder / "checkpoint_000002", folder / "checkpoint_000001"]
    assert trained.pull() == Path("results/cart")
    assert (Path("results/cart", RUN) / "checkpoints/checkpoint_000001/weights").exists()


def test_logs_are_printed_until_the_end_of_the_run(
    trained: volley.Run, head: LocalHead, capsys: pytest.CaptureFixture[str]
) -> None:
    (head.experiments / "cart/output.log").write_text("first\nsecond: \u03b1\n")
    head.change("cart", state="FINISHED")
    trained.logs(follow=True, lines=1)
    trained.logs()
    assert capsys.readouterr().out == "second: \u03b1\nfirst\nsecond: \u03b1\n"


def test_wait_returns_the_end_and_raises_a_failure(trained: volley.Run, head: LocalHead) -> None:
    head.change("cart", state="STOPPED")
    assert trained.wait().state == "STOPPED"
    head.change("cart", state="FAILED", reason="no space left on the disk")
    with pytest.raises(volley.UserError) as error:
        trained.wait()
    line = "cart: FAILED: no space left on the disk. Next: run.logs()"
    assert str(error.value) == line
