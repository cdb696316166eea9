"""User errors on the command line: each gives one line and exit code 2, and starts nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest
import ray

import payload.run.ray_cluster
from payload.__main__ import main
from payload.run.checkpoints import Checkpoint
from tests.local_ray import leave_local_ray


@dataclass(frozen=True)
class BadInput:
    """A command that must be refused, and what the refusal must name."""

    command: str
    words: tuple[str, ...]

    def arguments(self) -> list[str]:
        return [word.replace("~", " ") for word in self.command.split(" ") if word]


def bad(command: str, *words: str) -> BadInput:
    """Returns a bad input. Blanks separate the words of a command; ~ is a blank inside a word."""
    return BadInput(command, words)


BAD_INPUTS = {
    # The experiment
    "unknown config key": bad(
        'train --config {"num_env_runer":3}', "config.num_env_runer", "num_env_runners"
    ),
    "unknown stop key": bad('train --stop {"time_total":3}', "stop.time_total", "time_total_s"),
    "text for a number": bad('train --config {"num_env_runners":"x"}', "'x'", "valid integer"),
    "yes for a number": bad('train --config {"num_env_runners":true}', "True", "valid integer"),
    "negative number": bad('train --config {"num_env_runners":-1}', "-1", "equal to 0"),
    "empty schedule": bad('train --config {"lr":[]}', "config.lr", "[]"),
    "more workers than CPUs": bad(
        'train --config {"num_workers":9999}', "num_env_runners", "9999", "that fit on this machine"
    ),
    "more learners than CPUs": bad('train --config {"num_learners":9999}', "CPUs", "9999"),
    "no such environment": bad("train --env PongNoFrameskp-v4", "env", "PongNoFrameskip-v4?"),
    "an environment of two lines": bad("train --env Pong\n-v4", "env", "Pong"),
    "unknown env_config key": bad(
        'train --config {"env_config":{"noop_maxx":1}}', "config.env_config.noop_maxx", "noop_max?"
    ),
    "no such algorithm": bad("train --run A3C", "run", "'A3C'", "'IMPALA'", "'APPO'"),
    "negative seed": bad("train --seed -1", "seed", "-1", "equal to 0"),
    # A search
    "train with a search space": bad(
        'train --config {"lr":{"grid_search":[1,2]}}', "config.lr", "grid_search(1, 2)", "tune"
    ),
    "nothing to search": bad("tune", "no search space", "loguniform", "train"),
    "text to evaluate": bad('tune --config {"lr":{"eval":"1"}}', "config.lr", "not evaluated"),
    "a search over env runners": bad(
        'tune --config {"num_workers":{"choice":[1,2]}}', "config.num_workers", "how many trials"
    ),
    "a search over environments": bad('tune --env x --stop {"choice":[1]}', "stop.choice", "known"),
    "a search of no environment": bad(
        'tune --env CartPol-v1 --config {"lr":{"choice":[1,2]}}', "CartPol-v1", "CartPole-v1?"
    ),
    "a bound that is not valid": bad(
        'tune --config {"gamma":{"uniform":[0.9,2]}}', "config.gamma", "2.0", "equal to 1"
    ),
    "a trial that has no room": bad(
        'tune --config {"num_workers":9999,"lr":{"choice":[1,2]}}', "num_env_runners", "9999"
    ),
    "no samples": bad('tune --samples 0 --config {"lr":{"choice":[1,2]}}', "--samples 0", "than 0"),
    "no seeds": bad('tune --seeds 0 --config {"lr":{"choice":[1,2]}}', "--seeds 0", "than 0"),
    "samples of a grid": bad(
        'tune --samples 5 --config {"lr":{"grid_search":[1,2]}}',
        "--samples 5",
        "pure grid",
        "--seeds",
    ),
    "no search to resume": bad("tune --resume", "--resume", "no search in results/runs"),
    "a run as a search to resume": bad(
        "tune --resume trained/runs/a", "--resume trained/runs/a", "no search"
    ),
    "an option of train": bad("tune --sample 3", "--sample", "--samples?"),
    # The experiment file
    "no such file": bad("train nowhere.yaml", "nowhere.yaml", "No such file"),
    "a folder as a file": bad("train empty", "empty", "Is a directory"),
    "a file that is not text": bad("train picture.png", "picture.png"),
    "a file that is not an experiment": bad(
        "train list.yaml", "list.yaml", "run, env, config and stop"
    ),
    # The options
    "unknown option": bad("train --resutls x", "--resutls", "--results?"),
    "unknown option of evaluate": bad("evaluate x --episode 3", "--episode", "--episodes?"),
    "an option of another command": bad(
        "train --experiment x", "--experiment", "--experiment-name?"
    ),
    "unknown command": bad("trian", "trian", "train"),
    "no command": bad("", "train"),
    "no checkpoint to evaluate": bad("evaluate", "checkpoint"),
    "a seed that is not a number": bad("train --seed x", "--seed", "'x'", "int"),
    "malformed config": bad('train --config {"lr":', "--config", "'{\"lr\":'", "JSON object"),
    "a list as config": bad("train --config [1]", "--config", "'[1]'", "JSON object"),
    "malformed stop": bad("train --stop 18", "--stop", "'18'", "JSON object"),
    "W&B without its package": bad(
        "train --wandb", "wandb: volley", "not installed", "pip install wandb"
    ),
    "an experiment of MLflow without a name": bad("train --experiment-name=", "experiment_name"),
    "Azure ML without its package": bad(
        "train --tracking-uri azureml://x", "azureml-mlflow is not installed", "pip install"
    ),
    "event files perhaps": bad("train maybe.yaml", "tensorboard", "'maybe'", "boolean"),
    "no time between checkpoints": bad("train --checkpoint-every 0", "--checkpoint-every 0"),
    "no checkpoint kept": bad("train --keep-checkpoints 0", "--keep-checkpoints 0", "than 0"),
    "tracking without a scheme": bad(
        "train --tracking-uri localhost:5000", "--tracking-uri", "localhost:5000", "http://"
    ),
    "a password in a tracking URI": bad(
        "train --tracking-uri ftp://me:secret@host", "--tracking-uri ftp://***@host: must start"
    ),
    "env runners in no folder": bad(
        "train --env-runners nowhere/n", "--env-runners nowhere/n", "does not exist"
    ),
    "env runners of a search": bad("tune --env-runners n", "--env-runners"),
    "no episodes": bad("evaluate trained/runs/a --episodes 0", "--episodes 0", "greater than 0"),
    "negative episodes": bad("evaluate trained/runs/a --episodes -3", "--episodes -3", "than 0"),
    "half an episode": bad("evaluate trained/runs/a --episodes 0.5", "--episodes", "'0.5'", "int"),
    # Folders
    "results below a file": bad("train --results list.yaml/x", "--results list.yaml/x", "written"),
    "results in a kernel's folder": bad("train --results /proc/x", "--results /proc/x", "written"),
    "nothing to resume": bad("train --resume", "--resume", "results/runs"),
    "nothing to resume in a folder": bad("train --resume empty", "--resume empty", "checkpoint"),
    "resume with another environment": bad(
        "train --resume --results trained --env Acrobot-v1", "env is CartPole-v1", "Acrobot-v1"
    ),
    "evaluate in another environment": bad(
        "evaluate trained/runs/a --env Acrobot-v1", "--env Acrobot-v1", "CartPole-v1"
    ),
    "evaluate what is not a checkpoint": bad("evaluate empty", "empty", "no checkpoint"),
    "evaluate what is not there": bad("evaluate nowhere", "nowhere", "no checkpoint"),
    "a video in no folder": bad(
        "evaluate trained/runs/a --video nowhere/x.mp4", "--video nowhere/x.mp4", "does not exist"
    ),
}


@dataclass(frozen=True)
class Refusal:
    """What a refused command returned, printed and created."""

    exit_code: int
    out: str
    line: str
    created: set[Path]


@pytest.fixture
def place(
    tmp_path: Path, save_checkpoint: Callable[..., Checkpoint], monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A working directory with files that are not experiments, and a run with a checkpoint."""
    (tmp_path / "list.yaml").write_text("[1, 2]")
    (tmp_path / "maybe.yaml").write_text("tensorboard: maybe")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n\xff")
    (tmp_path / "empty").mkdir()
    save_checkpoint(tmp_path / "trained" / "runs" / "a" / "checkpoints")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(autouse=True)
def no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails a command that would start Ray instead of being refused."""

    def connect(_address: str | None, _runtime_env: object) -> NoReturn:
        raise AssertionError("Ray would be started")

    monkeypatch.setattr(payload.run.ray_cluster, "connect", connect)


@pytest.fixture(params=list(BAD_INPUTS.values()), ids=list(BAD_INPUTS))
def bad_input(request: pytest.FixtureRequest) -> BadInput:
    given: BadInput = request.param
    return given


@pytest.fixture
def refusal(bad_input: BadInput, place: Path, capsys: pytest.CaptureFixture[str]) -> Refusal:
    before = set(place.rglob("*"))
    exit_code = main(bad_input.arguments())
    printed = capsys.readouterr()
    return Refusal(exit_code, printed.out, printed.err, set(place.rglob("*")) - before)


def test_bad_input_gives_exit_code_2(refusal: Refusal) -> None:
    assert refusal.exit_code == 2


def test_bad_input_is_told_in_one_line(refusal: Refusal) -> None:
    assert len(refusal.line.splitlines()) == 1


def test_bad_input_is_told_in_the_programs_name(refusal: Refusal) -> None:
    assert refusal.line.startswith("payload: ")


@pytest.fixture(scope="module", autouse=True)
def no_ray_before() -> None:
    """Ends the Ray that tests of other files share."""
    leave_local_ray()


def test_bad_input_is_named(refusal: Refusal, bad_input: BadInput) -> None:
    assert [word for word in bad_input.words if word not in refusal.line] == []


def test_bad_input_prints_no_result(refusal: Refusal) -> None:
    assert refusal.out == ""


def test_bad_input_creates_nothing(refusal: Refusal) -> None:
    assert refusal.created == set()


@pytest.mark.usefixtures("refusal")
def test_bad_input_starts_no_ray() -> None:
    assert not ray.is_initialized()


@pytest.mark.slow
@pytest.mark.usefixtures("place")
def test_the_real_command_refuses_in_one_line() -> None:
    command = [sys.executable, "-m", "payload", "train", "--config", '{"num_env_runer": 3}']
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--help"], "train | tune | evaluate"),
        (["tune", "--help"], "--samples"),
        (["train", "--help"], "--resume"),
        (["evaluate", "--help"], "--episodes"),
    ],
)
def test_help_names_what_there_is(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(arguments)
    assert words in capsys.readouterr().out
