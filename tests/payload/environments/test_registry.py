"""An environment is found by "package:EnvId-v0", or an error says why not."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from payload.environments.make_env import find_spec, make_env, make_vector
from payload.errors import UserError
from payload.experiment.old_tables import RENAMED_ENVS
from payload.experiment.read import read_experiment

MAZE = """\
import gymnasium

class Maze(gymnasium.Env):
    pass

gymnasium.register("Maze-v0", entry_point=Maze)
gymnasium.register("Maze-v1", entry_point="volley_test_maze:Maze")
"""

CHATTY = """\
import gymnasium
import numpy as np

class Chatty(gymnasium.Env):
    observation_space = action_space = gymnasium.spaces.Discrete(2)
    steps = 0

    def reset(self, *, seed=None, options=None):
        return 0, {"seen": np.zeros(1)}

    def step(self, action):
        self.steps += 1
        return 0, 0.0, False, False, {"seen": np.zeros(self.steps), "who": "me" * self.steps}

gymnasium.register("Chatty-v0", entry_point=Chatty)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of modules that Python imports from."""
    monkeypatch.syspath_prepend(tmp_path)
    before, ids = set(sys.modules), set(gymnasium.registry)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]
    for env_id in set(gymnasium.registry) - ids:
        del gymnasium.registry[env_id]


def refusal(env_id: str) -> str:
    with pytest.raises(UserError) as error:
        find_spec(env_id)
    return str(error.value)


def test_the_package_of_an_id_is_imported(folder: Path) -> None:
    (folder / "volley_test_maze.py").write_text(MAZE)
    assert find_spec("volley_test_maze:Maze-v0").id == "Maze-v0"


def test_a_package_that_does_not_exist_is_named(folder: Path) -> None:
    (folder / "volley_test_maze.py").write_text(MAZE)
    message = refusal("volley_test_mase:Maze-v0")
    assert "cannot import volley_test_mase (did you mean volley_test_maze?)" in message
    assert "source_directory" in message


@pytest.mark.parametrize("times", [1, 2])
def test_an_id_that_its_package_does_not_register_names_those_that_it_does(
    folder: Path, times: int
) -> None:
    (folder / "volley_test_maze.py").write_text(MAZE)
    for _ in range(times):
        message = refusal("volley_test_maze:Mase-v0")
    assert message == (
        "env: volley_test_maze:Mase-v0: volley_test_maze registers Maze-v0, Maze-v1 "
        "(did you mean Maze-v0?)"
    )


def test_a_package_without_environments_is_told(folder: Path) -> None:
    (folder / "volley_test_empty.py").write_text("")
    assert "volley_test_empty registers no environment" in refusal("volley_test_empty:Maze-v0")


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("import gym", "ModuleNotFoundError: No module named 'gym'"),
        ("\n1 / 0", "ZeroDivisionError: division by zero"),
    ],
)
def test_an_import_that_fails_says_where(folder: Path, code: str, reason: str) -> None:
    file = folder / "volley_test_broken.py"
    file.write_text(code)
    line = len(code.splitlines())
    assert f"cannot be imported: {reason} ({file}, line {line})" in refusal(
        "volley_test_broken:A-v0"
    )


def test_an_old_import_names_its_successor(folder: Path) -> None:
    (folder / "volley_test_old.py").write_text("import gym")
    assert "; gym is Gymnasium today: import gymnasium as gym" in refusal("volley_test_old:A-v0")


def test_the_package_of_a_namespace_is_named_if_it_was_not_imported(folder: Path) -> None:
    (folder / "volley_test_maze.py").write_text(MAZE)
    assert refusal("volley_test_maze/Maze-v0") == (
        "env: volley_test_maze/Maze-v0: Gymnasium does not know it "
        "(did you mean volley_test_maze:volley_test_maze/Maze-v0?)"
    )


def test_infos_may_change_from_step_to_step(folder: Path) -> None:
    (folder / "volley_test_chatty.py").write_text(CHATTY)
    env = make_vector("volley_test_chatty:Chatty-v0", {}, num_envs=2)
    env.reset(seed=0)
    for _ in range(3):
        *_, infos = env.step(np.zeros(2, np.int64))
    assert not infos


def test_an_environment_that_draws_no_pictures_says_so() -> None:
    gymnasium.register("Blind-v0", "gymnasium:Env")
    try:
        with pytest.raises(UserError, match=r"Blind-v0: no video: the environment does not list"):
            make_env("Blind-v0", {}, "rgb_array")
    finally:
        del gymnasium.registry["Blind-v0"]


@pytest.mark.parametrize(("old", "new"), RENAMED_ENVS.items())
def test_a_retired_id_has_a_successor_that_gymnasium_knows(old: str, new: str) -> None:
    assert read_experiment({"env": old}).experiment.env == new
    assert find_spec(new).id == new


def test_a_retired_id_of_another_task_names_the_successor() -> None:
    with pytest.raises(UserError, match=r"did you mean LunarLander-v3\?"):
        find_spec("LunarLander-v2")
