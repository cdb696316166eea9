"""An environment that cannot be used is refused before anything starts, however it fails."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from payload.environments import probe as probing
from payload.environments.probe import EnvironmentFacts, probe
from payload.errors import UserError
from payload.experiment.read import read_experiment
from payload.experiment.settings import Experiment

pytestmark = pytest.mark.slow

ENV = """\
import gymnasium, numpy as np, os, sys, time

class Env(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}
    def step(self, action):
        return np.zeros(2, np.float32), 0.0, False, False, {}

class Bad(Env):
"""
SEQUENCE = "gymnasium.spaces.Sequence(gymnasium.spaces.Discrete(2))"
Probe = Callable[[str], EnvironmentFacts]


@pytest.fixture
def probe_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Probe:
    """Probes an environment that has the given method."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)

    def run(method: str) -> EnvironmentFacts:
        indented = "".join(f"    {line}\n" for line in method.splitlines())
        register = '\ngymnasium.register("Bad-v0", Bad)\n'
        (tmp_path / "volley_bad.py").write_text(ENV + indented + register)
        return probe(Experiment(env="volley_bad:Bad-v0"))

    return run


def test_what_the_policy_sees_is_measured(probe_of: Probe) -> None:
    seen = "observation_space is Box(-1.0, 1.0, (2,), float32)"
    spaces = "observations are Box(2,), actions Discrete(2)"
    assert probe_of("pass") == EnvironmentFacts(
        8, seen, "Discrete(2)", discrete=True, policy_spaces=spaces
    )


@pytest.mark.parametrize(
    ("space", "facts"),
    [
        ("Discrete(2, start=1)", {"discrete": True}),
        ("MultiBinary(2)", {"composed": True}),
        ("Box(-1, 1, (2, 2))", {}),
        ("Box(0, np.inf)", {"bounded": False}),
        ("Dict(a=gymnasium.spaces.Box(0, 1), b=gymnasium.spaces.Discrete(2))", {"composed": True}),
    ],
)
def test_what_the_policy_does_is_known(probe_of: Probe, space: str, facts: dict[str, bool]) -> None:
    probed = probe_of(f"action_space = gymnasium.spaces.{space}")
    expected = {"discrete": False, "composed": False, "bounded": True, **facts}
    assert {name: getattr(probed, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("def __init__(self): raise OSError('no window')", "making it raises OSError: no window"),
        ("def step(self, action): 1 / 0", "stepping it raises ZeroDivisionError"),
        (
            "def reset(self, **_): return np.full(2, 9), {}",
            r"reset returns an observation outside observation_space: int64 of shape \(2,\) from 9 "
            r"to 9 is not in Box\(-1.0, 1.0, \(2,\), float32\)$",
        ),
        ("def reset(self, **_): return np.zeros(3), {}", r"float64 of shape \(3,\) is not in Box"),
        (
            "observation_space = gymnasium.spaces.Dict(near=gymnasium.spaces.Discrete(4))\n"
            "def reset(self, **_): return {'near': 4}, {}",
            r'observation_space\["near"\]: int 4 is not in Discrete\(4\)$',
        ),
        ("def __init__(self): import pygame_missing", "PyPI package of pygame_missing to pip_pack"),
        (
            "def __init__(self): raise gymnasium.error.DependencyNotInstalled('Box2D is not "
            'installed, run `pip install "gymnasium[box2d]"`\')',
            r"Next: pip_packages: \[gymnasium\[box2d\]\]$",
        ),
        ("def reset(self, **_): os._exit(3)", "its process ended with exit code 3"),
        (f"observation_space = {SEQUENCE}", "observation_space is Sequence.*; allowed: Box, "),
        (f"action_space = {SEQUENCE}", "action_space is Sequence.*; allowed: Box, "),
        (
            "observation_space = gymnasium.spaces.Discrete(10**12)",
            "Discrete.1000000000000., 1,000,000,000,000 numbers",
        ),
    ],
)
def test_an_environment_that_fails_is_named_with_its_reason(
    probe_of: Probe, method: str, words: str
) -> None:
    with pytest.raises(UserError, match=f"^env: volley_bad:Bad-v0: .*{words}"):
        probe_of(method)


def test_an_environment_of_several_agents_is_told_what_trains_it(probe_of: Probe) -> None:
    with pytest.raises(UserError, match=r"^env: volley_bad:Bad-v0: it has several agents, and an "):
        probe_of("observation_space = None\npossible_agents = ['a', 'b']")


def test_a_wrapper_that_does_not_fit_is_named_by_its_key() -> None:
    config = {"wrappers": ["ClipAction", "TimeLimit"]}
    values = {"run": "PPO", "env": "Pendulum-v1", "config": config}
    with pytest.raises(UserError, match=r"^config\.wrappers\.TimeLimit: needs max_episode_steps$"):
        probe(read_experiment(values).experiment)


def test_an_environment_that_hangs_is_given_up(
    probe_of: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probing, "PATIENCE_S", 5.0)
    with pytest.raises(UserError, match="create, reset and one step have not ended after 5 s"):
        probe_of("def reset(self, **_): time.sleep(600)")


def test_a_module_that_trains_when_it_is_imported_is_said_to(
    probe_of: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probing, "PATIENCE_S", 5.0)
    with pytest.raises(UserError, match=r"import volley_bad .* has not ended after 5 s"):
        probe_of("time.sleep(600)")


def test_an_environment_that_hangs_leaves_no_process(
    probe_of: Probe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe_of("pass")
    bad = tmp_path / "volley_bad.py"
    bad.write_text(bad.read_text().replace("pass", "def reset(self, **_): time.sleep(600)"))
    monkeypatch.setattr(probing, "PATIENCE_S", 5.0)
    with pytest.raises(UserError, match="not ended after"):
        # `timeout` runs Python as its child process, as xvfb-run does.
        probe(Experiment(env="volley_bad:Bad-v0", run_under="timeout 600"))
    commands = [" ".join(one.info["cmdline"] or []) for one in psutil.process_iter(["cmdline"])]
    assert not [command for command in commands if "volley_bad:Bad-v0" in command]


def test_an_environment_without_its_window_is_told_of_run_under(probe_of: Probe) -> None:
    with pytest.raises(UserError, match=r"no display .*; .* run_under: xvfb-run -a gives"):
        probe_of("def __init__(self): raise OSError('no display name and no $DISPLAY')")
