"""`volley run`: a script finds Ray, MLflow and its folder, and leaves no MLflow run open."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from mlflow.entities import Run

from payload.script.child_process import End
from payload.tracking.script_runs import SUBMISSION
from tests.payload.command_line import (
    in_process,
    run_folder,
    tracked_runs,
    volley,
    with_database,
)
from volley.cli import main

pytestmark = pytest.mark.slow

SCRIPT = """
import json, os, sys
from pathlib import Path

import mlflow, ray

ray.init()

@ray.remote
def square(number):
    assert "MLFLOW_HTTP_REQUEST_MAX_RETRIES" not in os.environ
    return number**2, os.environ["VOLLEY_RESULTS"]

(answer, results) = ray.get(square.remote(7))
with mlflow.start_run(run_name="ended"):
    mlflow.log_metric("answer", answer)
mlflow.start_run(run_name="open")
Path(results, "answer.json").write_text(json.dumps([answer, *sys.argv[1:]]))
os.kill(os.getpid(), 9)
"""


@dataclass(frozen=True)
class Killed:
    """A script that was killed while one of its two MLflow runs was open."""

    exit_code: int
    output: str
    run: Path
    mlflow_runs: dict[str, Run]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Killed:
    folder = with_database(tmp_path_factory.mktemp("script"))
    (folder / "square.py").write_text(SCRIPT)
    done = volley(folder, "run", "square.py", "--", "--run", "a b")
    runs = {run.info.run_name: run for run in tracked_runs(f"sqlite:///{folder}/results/mlflow.db")}
    return Killed(done.returncode, done.stdout, run_folder(folder), runs)


def test_its_end_is_told_with_the_reason(killed: Killed) -> None:
    assert killed.exit_code == 137
    assert "FAILED: killed by SIGKILL\n" in killed.output


def test_its_tasks_run_on_ray_and_its_files_are_kept(killed: Killed) -> None:
    answer = json.loads((killed.run / "output/answer.json").read_text())
    assert answer == [49, "--run", "a b"]


def test_its_mlflow_runs_are_tagged_and_none_stays_open(killed: Killed) -> None:
    statuses = {name: run.info.status for name, run in killed.mlflow_runs.items()}
    assert statuses == {"ended": "FINISHED", "open": "FAILED"}
    tags = {run.data.tags[SUBMISSION] for run in killed.mlflow_runs.values()}
    assert tags == {killed.run.name}


@pytest.mark.parametrize(
    ("arguments", "refusal"),
    [
        (("train.py",), "entry_script: "),
        (("here.py", "--source-directory", "elsewhere"), "entry_script: "),
        (("here.py", "--resume", "nowhere"), "--resume nowhere: is not a folder"),
        (("here.py", "--status", "nowhere/status"), "--status nowhere/status: the folder does not"),
        (("here.py", "--tracking-uri", "server"), "--tracking-uri server: must start with"),
        (
            ("here.py", "--tracking-uri", "http://127.0.0.1:9"),
            "--tracking-uri http://127.0.0.1:9",
        ),
    ],
)
def test_what_cannot_be_used_leaves_nothing(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    refusal: str,
) -> None:
    (tmp_path / "here.py").touch()
    monkeypatch.chdir(tmp_path)
    assert main(["run", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"volley: {refusal}")
    assert [path.name for path in tmp_path.iterdir()] == ["here.py"]


def test_a_script_that_is_running_is_not_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def another_resume(*_: object) -> End:
        resume = ("run", "here.py", "--resume", str(run_folder(tmp_path)))
        refused = in_process(tmp_path, *resume, command=main)
        assert refused.returncode == 2
        assert "is running it; stop that first" in refused.stderr
        return End("FINISHED", "over", 0)

    monkeypatch.setattr("payload.commands.run_script._run_here", another_resume)
    (tmp_path / "here.py").touch()
    assert in_process(tmp_path, "run", "here.py", command=main).returncode == 0


def test_a_first_script_makes_the_folder_of_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "payload.commands.run_script._run_here", lambda *_: End("FINISHED", "over", 0)
    )
    (tmp_path / "it's here.py").touch()
    assert in_process(tmp_path, "run", "it's here.py", command=main).returncode == 0
    assert run_folder(tmp_path).name.startswith("it-s-here_")
    assert (tmp_path / "results/mlflow.db").exists()
