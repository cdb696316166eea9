"""A checkpoint is code: what this user has not made here is shown and asked before it runs."""

from __future__ import annotations

import hashlib
import os
import pickle
import pty
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from payload.commands.prepare import check_resumed
from payload.errors import UserError
from payload.experiment.read import read_experiment
from payload.experiment.settings import Experiment
from payload.run.checkpoint_policy import Policy, needs_pickle
from payload.run.checkpoints import Checkpoint, CheckpointStore, DamagedError, find_checkpoint
from payload.run.evaluate import evaluate
from payload.run.policy_weights import write_weights
from payload.run.progress import Progress
from payload.run.run_folder import RunFolder
from payload.run.trust import KEY, SIGNATURE, Signed, check_trust, code_of
from tests.payload.command_line import in_process
from tests.payload.conftest import NoLearners
from tests.payload.impala.test_parity import CHECKPOINT

Save = Callable[..., Checkpoint]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of this user's key."""
    monkeypatch.setenv("VOLLEY_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    return lambda: monkeypatch.setenv("VOLLEY_HOME", str(tmp_path / "of another"))


# Signatures


def test_a_saved_checkpoint_is_this_users_own(
    tmp_path: Path, home: Path, save_checkpoint: Save, another_user: Callable[[], None]
) -> None:
    checkpoint = save_checkpoint(tmp_path / "checkpoints")
    checkpoint.verify()
    assert checkpoint.signed.is_own()
    assert (home / KEY).stat().st_mode & 0o777 == 0o600
    assert [path.name for path in home.iterdir()] == [KEY]
    another_user()
    assert not checkpoint.signed.is_own()


def test_a_folder_cannot_say_of_itself_that_it_is_trusted(
    tmp_path: Path, save_checkpoint: Save
) -> None:
    own = save_checkpoint(tmp_path / "own", 1)
    other = save_checkpoint(tmp_path / "other", 2)
    shutil.copy(own.path / SIGNATURE, other.path / SIGNATURE)
    assert not other.signed.is_own()
    (other.path / SIGNATURE).unlink()
    assert not other.signed.is_own()
    (other.path / SIGNATURE).write_bytes(b"\xff\n")
    assert not other.signed.is_own()


def test_a_key_in_a_linked_folder_is_none(
    tmp_path: Path, home: Path, save_checkpoint: Save
) -> None:
    (tmp_path / "somebody's").mkdir()
    home.symlink_to(tmp_path / "somebody's")
    checkpoint = save_checkpoint(tmp_path / "checkpoints")
    assert not (checkpoint.path / SIGNATURE).exists()
    assert not checkpoint.signed.is_own()


@pytest.mark.parametrize("add", ["file", "link", "linked folder"])
def test_a_file_that_the_checksums_do_not_list_is_refused(
    tmp_path: Path, save_checkpoint: Save, add: str
) -> None:
    checkpoint = save_checkpoint(tmp_path / "checkpoints")
    added = checkpoint.algorithm / "added.pkl"
    if add == "file":
        added.write_bytes(b"")
    else:
        added.symlink_to(tmp_path if add == "linked folder" else "weights")
    with pytest.raises(DamagedError, match=r"algorithm/added.pkl is not in SHA256SUMS: it was add"):
        checkpoint.verify()


def test_checksums_of_files_elsewhere_are_refused(tmp_path: Path, save_checkpoint: Save) -> None:
    checkpoint = save_checkpoint(tmp_path / "checkpoints")
    outside = tmp_path / "outside"
    outside.write_text("x")
    with (checkpoint.path / "SHA256SUMS").open("a") as sums:
        sums.write(f"{hashlib.sha256(b'x').hexdigest()}  ../../outside\n")
    with pytest.raises(DamagedError, match=r"\.\./\.\./outside is wrong"):
        checkpoint.verify()


# What is asked


def test_what_would_run_is_shown(tmp_path: Path) -> None:
    file = tmp_path / "experiment.yaml"
    file.write_text(
        "run: PPO\nenv: walk:Walk-v0\nrun_under: sh -c evil\npip_packages: [walker]\n"
        "conda_packages: [swig]\nsource_directory: there\nenvironment_variables: {LD_PRELOAD: x}\n"
    )
    assert code_of(read_experiment(file).experiment, pickles=True) == {
        "run_under": "sh -c evil",
        "packages": "walker, swig",
        "modules": f"walk, {tmp_path}/there",
        "environment variables": "LD_PRELOAD=x",
        "pickles": "RLlib's state and networks",
    }


ASK = """\
from pathlib import Path
from payload.errors import UserError
from payload.run.trust import Signed, check_trust
try:
    check_trust("runs/x", [Signed(Path("."), ("file",))], {"run_under": "sh\\x1b]0;x\\x07"}, False)
    print("trusted")
except UserError as error:
    print(error)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("answer", "said"), [(b"y\n", "trusted"), (b"\n", "not trusted, so")])
def test_a_person_at_a_terminal_is_asked_once(tmp_path: Path, answer: bytes, said: str) -> None:
    (tmp_path / "file").write_text("x")
    terminal, other = pty.openpty()
    command = [sys.executable, "-c", ASK]
    process = subprocess.Popen(command, cwd=tmp_path, stdin=other, stdout=other, env=os.environ)
    os.close(other)
    os.write(terminal, answer)
    written = b""
    try:
        while chunk := os.read(terminal, 2**16):
            written += chunk
    except OSError:  # The process has ended.
        pass
    assert process.wait() == 0
    os.close(terminal)
    shown = written.decode()
    assert "you did not create it on this machine, and it would run code:" in shown
    assert "\x1b]" not in shown
    assert said in shown
    assert Signed(tmp_path, ("file",)).is_own() is (answer == b"y\n")


def test_without_a_terminal_it_is_one_line_that_names_the_code(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    signed = Signed(tmp_path, ("file",))
    with pytest.raises(UserError, match=r"it would run code \(run_under: sh\).* add --trust"):
        check_trust("runs/x", [signed], {"run_under": "sh"}, trust=False)
    check_trust("runs/x", [signed], {"run_under": "sh"}, trust=True)
    check_trust("runs/x", [signed], {"run_under": "sh"}, trust=False)


def test_a_run_of_somebody_else_is_not_resumed(
    tmp_path: Path,
    save_checkpoint: Save,
    another_user: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = RunFolder(tmp_path / "run")
    save_checkpoint(run.path / "checkpoints", 1)
    check_resumed(run, trust=False)
    another_user()
    with pytest.raises(UserError, match=r"--resume .*/run: you did not create it .*pickles"):
        check_resumed(run, trust=False)
    # One of several is enough: a damaged checkpoint makes the resume take the one before.
    save_checkpoint(run.path / "checkpoints", 2)
    with pytest.raises(UserError, match="you did not create it"):
        check_resumed(run, trust=False)
    with monkeypatch.context() as job:
        job.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}")
        check_resumed(run, trust=False)
    check_resumed(run, trust=True)
    check_resumed(run, trust=False)


# Weights without pickle


class Bomb:
    """Makes a file when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Callable[..., None], tuple[Path]]:
        return Path.touch, (self.file,)


def foreign(folder: Path, bomb: Path | None = None, experiment: str = "") -> Checkpoint:
    """Writes the checkpoint of a game as another user sends it: with checksums, not signed."""
    checkpoint = find_checkpoint(shutil.copytree(CHECKPOINT, folder))
    write_weights(checkpoint.module / "module_state.pkl", checkpoint.weights)
    for file in checkpoint.path.rglob("*.pkl") if bomb else ():
        file.write_bytes(pickle.dumps(Bomb(bomb)))  # type: ignore[arg-type]
    with checkpoint.experiment_file.open("a") as text:
        text.write(experiment)
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(checkpoint.path)}\n"
        for path in checkpoint.path.rglob("*")
        if path.is_file()
    ]
    (checkpoint.path / "SHA256SUMS").write_text("".join(lines))
    return checkpoint


@pytest.mark.slow
def test_a_game_is_played_without_a_pickle_and_without_a_question(tmp_path: Path) -> None:
    checkpoint = foreign(tmp_path / "pong", bomb=tmp_path / "bomb")
    assert not needs_pickle(checkpoint)
    done = in_process(tmp_path, "evaluate", "pong", "--episodes", "1", "--seed", "1")
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "bomb").exists()
    assert evaluate(checkpoint, 1, seed=1) == evaluate(find_checkpoint(CHECKPOINT), 1, seed=1)


@pytest.mark.slow
def test_weights_that_are_pickled_or_of_another_network_are_not_read(tmp_path: Path) -> None:
    checkpoint = foreign(tmp_path / "pong")
    checkpoint.weights.write_bytes(pickle.dumps(Bomb(tmp_path / "bomb")))
    with pytest.raises(UserError, match="cannot be read"):
        Policy(checkpoint, explore=False)
    checkpoint.experiment_file.write_text("config: {fcnet_hidden: 8}")
    write_weights(
        CHECKPOINT / checkpoint.module.relative_to(checkpoint.path) / "module_state.pkl",
        checkpoint.weights,
    )
    with pytest.raises(UserError, match="cannot be read"):
        Policy(checkpoint, explore=False)
    assert not (tmp_path / "bomb").exists()


@pytest.mark.slow
def test_code_of_somebody_elses_checkpoint_runs_only_with_trust(tmp_path: Path) -> None:
    foreign(tmp_path / "under", experiment="run_under: env RAN=1\n")
    checkpoint = foreign(tmp_path / "old")
    checkpoint.weights.unlink()
    sums = checkpoint.path / "SHA256SUMS"
    lines = sums.read_text().splitlines(keepends=True)
    sums.write_text("".join(line for line in lines if checkpoint.weights.name not in line))
    for name, code in (("under", "run_under: env RAN=1"), ("old", "pickles: RLlib's state")):
        done = in_process(tmp_path, "evaluate", name, "--episodes", "1")
        assert done.returncode == 2
        (line,) = done.stderr.strip().splitlines()
        assert (
            f"/{name}: you did not create it on this machine, and it would run code ({code}" in line
        )
    options = ("--episodes", "1", "--seed", "1")
    assert in_process(tmp_path, "evaluate", "old", "--trust", *options).returncode == 0
    # It is this user's from now on.
    assert in_process(tmp_path, "evaluate", "old", *options).returncode == 0


@pytest.mark.slow
def test_a_training_of_a_game_writes_its_weights_without_pickle(tmp_path: Path) -> None:
    class Learned:
        learner_group = NoLearners()

        def save_to_path(self, path: Path) -> None:
            shutil.copytree(CHECKPOINT / "algorithm", path)

    saved = CheckpointStore(tmp_path).save(Learned(), Experiment(), Progress(iteration=1))
    saved.verify()
    assert not needs_pickle(saved)
    cartpole = Experiment(env="CartPole-v1")
    saved = CheckpointStore(tmp_path).save(Learned(), cartpole, Progress(iteration=2))
    assert needs_pickle(saved)
