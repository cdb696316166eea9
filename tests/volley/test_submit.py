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
from volley.submit import check, checked_name, line_of, pack


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
    with pytest.raises(UserError) as error:
        pack(path, check(path, list(params), source_directory))
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
    pack(path, check(path, [], str(tmp_path)))


def test_a_script_that_hides_what_it_imports_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ray.py").write_text("import ray.tune\n")
    said = refusal(tmp_path / "ray.py")
    assert said == f"{tmp_path}/ray.py: hides the module ray, which it imports; rename it"


def test_a_script_that_is_not_python_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "old.py"
    path.write_text('import ray\nprint "hello"\n')
    assert refusal(path).startswith(f"{path}:2: Missing parentheses")


@pytest.mark.parametrize(
    ("params", "source_directory", "option"), [(("--a",), None, "--"), ((), "src", "--source")]
)
def test_what_belongs_to_scripts_is_refused_for_an_experiment(
    experiment: Path, params: tuple[str, ...], source_directory: str | None, option: str
) -> None:
    said = refusal(experiment, *params, source_directory=source_directory)
    assert said.startswith(f"{experiment}: is an experiment; {option}")


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
