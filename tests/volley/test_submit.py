"""`volley submit` checks an experiment here and sends it to the head with the payload."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml

from payload.errors import UserError
from payload.experiment import MAX_TRAVEL_BYTES, read_experiment
from tests.volley.conftest import Laptop
from tests.volley.head import LocalHead
from volley.cli import main
from volley.submission import checked_name, line_of, submissions


@pytest.mark.slow
def test_the_payload_and_the_experiment_arrive_on_the_head(
    connected: Laptop, head: LocalHead, experiment: Path
) -> None:
    assert connected.volley("submit", str(experiment)).startswith("cart: QUEUED, position 1")
    folder = head.experiments / "cart"
    assert (folder / "experiment.yaml").read_bytes() == experiment.read_bytes()
    assert (folder / "stack.yaml").read_text() == "{}"
    code = "import payload.__main__; print(payload.__main__.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith(f"{folder}/payload/")


@pytest.mark.slow
def test_what_an_experiment_names_arrives_with_it(
    connected: Laptop, head: LocalHead, experiment: Path
) -> None:
    source = experiment.parent / "walk"
    source.mkdir()
    (source / "walk.py").write_text("x = 1\n")
    with experiment.open("a") as file:
        file.write("source_directory: walk\n")
    connected.volley("submit", str(experiment), "--name", "walk")
    folder = head.experiments / "walk"
    with tarfile.open(folder / "files.tar") as archive:
        assert archive.getnames() == ["source/walk.py"]
    sent = read_experiment(folder / "experiment.yaml").experiment
    assert sent.source_directory == str(folder / "source")


@pytest.mark.slow
def test_an_experiment_of_several_mebibytes_arrives_whole(
    connected: Laptop, head: LocalHead, experiment: Path
) -> None:
    data = experiment.parent / "data"
    data.mkdir()
    (data / "frames").write_bytes(bytes(7 * 2**20))
    with experiment.open("a") as file:
        file.write("inputs: {data: data}\n")
    connected.volley("submit", str(experiment))
    with tarfile.open(head.experiments / "cart" / "files.tar") as archive:
        (member,) = archive.getmembers()
    assert (member.name, member.size) == ("inputs/data/frames", 7 * 2**20)


@pytest.mark.slow
def test_the_same_experiment_sent_twice_changes_nothing(
    connected: Laptop, experiment: Path
) -> None:
    first = json.loads(connected.volley("submit", str(experiment), "--json"))
    assert json.loads(connected.volley("submit", str(experiment), "--json")) == first


@pytest.mark.slow
def test_a_submit_whose_connection_is_lost_is_sent_again(
    connected: Laptop, head: LocalHead, experiment: Path
) -> None:
    head.cut("submit")
    assert connected.volley("submit", str(experiment)).startswith("cart: QUEUED, position 1")
    assert head.connections() == 2


@pytest.mark.slow
def test_now_is_passed_on(connected: Laptop, head: LocalHead, experiment: Path) -> None:
    connected.volley("submit", str(experiment), "--now")
    assert head.record("cart")["now"] is True


@pytest.mark.slow
def test_a_wrong_experiment_is_refused_before_pulumi_is_asked(laptop: Laptop) -> None:
    path = laptop.folder / "wrong.yaml"
    path.write_text("env: CartPole-v1\nconfig:\n  num_env_runners: 1\n  lrr: 0.1\n")
    said = laptop.volley("submit", str(path), code=2)
    assert said.startswith(f"{path}:4: config.lrr: unknown key (did you mean lr?)")
    assert laptop.asked.read_text() == ""


def refusal(path: Path, *params: str, source_directory: str | None = None) -> str:
    overrides = {} if source_directory is None else {"source_directory": source_directory}
    with pytest.raises(UserError) as error:
        submissions([str(path)], script_params=list(params), overrides=overrides)[0].archive()
    return str(error.value)


@pytest.mark.slow
def test_a_script_is_queued_with_its_arguments(connected: Laptop, head: LocalHead) -> None:
    path = connected.folder / "train.py"
    path.write_text("import sys\n")
    assert connected.volley("submit", str(path), "--", "--run", "a b").startswith("train: QUEUED")
    assert head.record("train")["script"] is True
    submitted = head.experiments / "train"
    assert yaml.safe_load((submitted / "experiment.yaml").read_text()) == {
        "source_directory": "source",
        "entry_script": "train.py",
        "script_params": ["--run", "a b"],
    }
    assert (submitted / "source/train.py").read_text() == "import sys\n"
    assert (submitted / "payload/script/__main__.py").exists()
    assert "train (script)" in connected.volley("status")


def test_a_script_that_needs_files_beside_it_is_told_how_to_send_them(tmp_path: Path) -> None:
    (tmp_path / "helper.py").touch()
    path = tmp_path / "train.py"
    path.write_text("def f():\n    from helper import g\n")
    assert refusal(path) == (
        f"{path}: imports helper, which lies beside it and would stay behind. Next: add "
        f"--source-directory {tmp_path}"
    )
    (with_it,) = submissions([str(path)], overrides={"source_directory": str(tmp_path)})
    assert "source/helper.py" in str(with_it.files().archive.content())


def test_a_script_that_hides_what_it_imports_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ray.py").write_text("import ray.tune\n")
    said = refusal(tmp_path / "ray.py")
    assert said == f"{tmp_path}/ray.py: hides the module ray, which it imports; rename it"


def test_a_script_that_is_not_python_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "old.py"
    path.write_text('import ray\nprint "hello"\n')
    assert refusal(path).startswith(f"{path}:2: Missing parentheses")


def test_arguments_are_refused_for_an_experiment(experiment: Path) -> None:
    assert refusal(experiment, "--a") == f"{experiment}: is an experiment; -- is for scripts"


def test_settings_are_refused_for_a_script(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import sys\n")
    with pytest.raises(UserError, match=r"train\.py: is a script; --config is for experiments"):
        submissions([str(tmp_path / "train.py")], overrides={"config": {"lr": 1}})


def test_a_missing_file_is_told_with_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "pong.yaml").touch()
    said = refusal(tmp_path / "pogn.yaml")
    assert said.endswith(f"no such file (did you mean {tmp_path}/pong.yaml?)")


def test_a_missing_folder_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("env: CartPole-v1\nsource_directory: nowhere\n")
    assert refusal(path) == f"{path}:2: source_directory: {tmp_path}/nowhere does not exist"


def test_more_than_ray_distributes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("env: CartPole-v1\ninputs: {data: data}\n")
    (tmp_path / "data").mkdir()
    with (tmp_path / "data" / "large").open("wb") as file:
        file.truncate(MAX_TRAVEL_BYTES + 2**20)
    assert "its files have 513 MiB, more than the 512 MiB that Ray distributes" in refusal(path)


def test_a_criterion_with_slashes_has_its_line(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("env: CartPole-v1\nstop:\n  env_runners/episode_return_mean: x\n")
    assert line_of(path, ["stop", "env_runners/episode_return_mean"]) == 3


def test_the_name_is_the_files_in_the_heads_letters() -> None:
    assert checked_name(Path("experiments/My_Pong.yaml"), None) == "my-pong"


@pytest.mark.parametrize("name", ["", "-a", "A", "a/b", "a" * 41])
def test_a_name_that_cannot_be_a_folder_is_refused(name: str) -> None:
    with pytest.raises(UserError, match=r"must be 1 to 40 characters of a-z, 0-9 and -"):
        checked_name(Path("pong.yaml"), name)


@pytest.mark.slow
def test_options_override_the_file_as_in_train(
    connected: Laptop, head: LocalHead, experiment: Path
) -> None:
    options = [
        *("--run", "PPO", "--env", "CartPole-v1", "--seed", "3", "--priority", "7"),
        *("--config", "{lr: 0.01}", "--stop", "{training_iteration: 2}"),
    ]
    experiment.write_text("run: IMPALA\nconfig: {lr: 5e-4, gamma: 0.9}\n")
    said = connected.volley("submit", str(experiment), *options)
    assert said == "cart: QUEUED, position 1\nNext: volley logs cart -f\n"
    assert yaml.safe_load((head.experiments / "cart/experiment.yaml").read_text()) == {
        "run": "PPO",
        "env": "CartPole-v1",
        "config": {"lr": 0.01, "gamma": 0.9, "seed": 3},
        "stop": {"training_iteration": 2},
    }
    assert head.record("cart")["priority"] == 7


@pytest.mark.slow
def test_without_a_file_it_is_called_after_what_it_trains(
    connected: Laptop, head: LocalHead
) -> None:
    said = connected.volley("submit", "--run", "PPO", "--env", "CartPole-v1", "--json")
    assert json.loads(said)["name"] == "ppo-cartpole-v1"
    source = connected.folder / "walk"
    source.mkdir()
    (source / "walk.py").touch()
    connected.volley("submit", "--env", "walk:Walk-v0", "--source-directory", "walk")
    assert (head.experiments / "impala-walk-walk-v0/source/walk.py").exists()


@pytest.mark.slow
def test_a_pattern_submits_each_file(connected: Laptop, head: LocalHead, experiment: Path) -> None:
    for name in ("b", "a"):
        (connected.folder / f"runs/{name}.yaml").parent.mkdir(exist_ok=True)
        (connected.folder / f"runs/{name}.yaml").write_text("env: CartPole-v1\nrun: PPO\n")
    said = connected.volley("submit", "runs/*.yaml", str(experiment))
    assert said.splitlines() == [
        *(f"{name}: QUEUED, position {place}" for place, name in enumerate(("a", "b", "cart"), 1)),
        "Next: volley status",
    ]
    assert head.connections() == 1
    again = json.loads(connected.volley("submit", "runs/*.yaml", "--json"))
    assert [answer["name"] for answer in again["experiments"]] == ["a", "b"]
    (connected.folder / "runs/b.yaml").write_text("env: CartPole-v1\nrun: DQN\n")
    refused = connected.volley("submit", "runs/*.yaml", code=2)
    assert refused.startswith("b: an experiment b is QUEUED with other files.")
    assert refused.endswith("(queued already: a)")


@pytest.mark.slow
def test_one_wrong_file_of_several_queues_none(laptop: Laptop) -> None:
    (laptop.folder / "a.yaml").write_text("env: CartPole-v1\nrun: PPO\n")
    (laptop.folder / "b.yaml").write_text("env: CartPole-v1\nrunn: PPO\n")
    assert laptop.volley("submit", "[ab].yaml", code=2).startswith("b.yaml:2: runn: unknown key")
    assert laptop.asked.read_text() == ""


def test_an_error_in_an_option_names_the_option(experiment: Path) -> None:
    with pytest.raises(UserError) as error:
        submissions([str(experiment)], overrides={"config": {"lrr": 1}})
    assert str(error.value).startswith("--config: config.lrr: unknown key (did you mean lr?)")


@pytest.mark.parametrize(
    ("files", "name", "words"),
    [
        (("a/x.yaml", "b/x.yaml"), None, "a/x.yaml and b/x.yaml are both called x on the cluster"),
        (("a/x.yaml", "b/x.yaml"), "y", "--name y: is for one experiment, and there are 2 files"),
        (("c/*.yaml",), None, "c/*.yaml: matches no file"),
        (("a",), None, "a: is a folder. Next: volley submit 'a/*.yaml'"),
        ((), None, "no experiment given. Next: volley submit FILE, or volley submit --env ID"),
    ],
)
def test_several_files_that_cannot_be_queued_together(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    files: tuple[str, ...],
    name: str | None,
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("a", "b"):
        Path(folder).mkdir()
        Path(folder, "x.yaml").write_text("env: CartPole-v1\nrun: PPO\n")
    with pytest.raises(UserError) as error:
        submissions(files, name)
    assert str(error.value).startswith(words)


@pytest.mark.parametrize("priority", ["high", "1001", "1.5", ""])
def test_a_priority_that_is_not_a_number_is_refused(
    priority: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["submit", "x.yaml", "--priority", priority]) == 2
    line = f"{priority!r} must be a whole number from -1000 to 1000"
    assert line in capsys.readouterr().err


def test_a_dry_run_lists_what_would_travel_and_asks_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "")
    Path("walk").mkdir()
    for name, text in (("walk.py", "x = 1\n"), (".env", "KEY=1"), (".gitignore", "*.log\n")):
        Path("walk", name).write_text(text)
    Path("walk/a.log").touch()
    text = "run: PPO\nenv: walk:Walk-v0\nconfig: {num_workers: 2}\nsource_directory: walk\n"
    Path("walk.yaml").write_text(text)
    assert main(["submit", "walk.yaml", "--dry-run", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["files"] == [{"path": f"{tmp_path}/walk/walk.py", "bytes": 6}]
    assert {entry["path"]: entry["why"] for entry in answer["left"]} == {
        f"{tmp_path}/walk/.env": "may have secrets",
        f"{tmp_path}/walk/a.log": "named in .gitignore",
    }
    assert yaml.safe_load(answer["experiment"])["config"] == {"num_env_runners": 2}
    assert main(["submit", "walk.yaml", "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "Nothing was sent." in said
    assert "stays: may have secrets" in said
    assert "num_workers" in said
