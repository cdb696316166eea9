"""Plays one step of an environment in a process of its own, before anything starts.

An environment may print, hang, crash or open a window; the process that trains sees none of it.

    python -m payload.environments.probe EXPERIMENT ANSWER
"""

import json
import math
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import psutil
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Space, Tuple

from payload.environments.make_env import creator_of, find_spec, make_env
from payload.environments.missing_packages import remedy
from payload.environments.policy_action import PolicyAction
from payload.environments.policy_observation import PolicyObservation
from payload.environments.space_entries import difference_from, entries, largest, policy_spaces
from payload.errors import TemporaryError, UserError, raised
from payload.experiment.file import to_yaml
from payload.experiment.read import read_experiment
from payload.experiment.settings import Experiment
from payload.may_pass import ERRNOS
from payload.processes import kill

PATIENCE_S = 120.0
"""Time limit of an environment's first step; a simulator may load for a while."""
NO_WINDOW = re.compile(r"\bdisplay|video device|\bX11|\bX server|Xlib|\bGLX", re.IGNORECASE)
"""Matches errors of Xlib, Tk, SDL, GLFW, Qt and Java without an X server."""
ACTION_MASK = "action_mask"
"""The key of RLlib's module for action masks."""
SEVERAL_AGENTS = (
    "it has several agents, and an experiment trains one. A script trains it with "
    "PPOConfig().multi_agent(...). Next: volley run SCRIPT"
)


@dataclass(frozen=True)
class EnvironmentFacts:
    """What the first step of an environment has shown."""

    observation_bytes: int = 0
    """Size as the policy sees it."""
    largest: str = ""
    """The largest part of the observation space, in words."""
    actions: str = ""
    """The action space, in words."""
    discrete: bool = False
    """The policy makes one choice."""
    composed: bool = False
    """The policy makes several choices, or choices and numbers."""
    bounded: bool = True
    """All numbers of an action have two bounds."""
    policy_spaces: str = ""
    """What the policy sees and does, in words."""
    image: bool = False
    """The policy sees an image."""
    keeps_dict: bool = False
    """The policy sees a Dict."""
    atari: bool = False
    """A game that ale-py steps as a vector in one call."""
    problem: str = ""
    """Why the environment cannot be used."""
    passes: bool = False
    """Whether the machine is to blame: its disk is full, for example."""


def probe(experiment: Experiment, program: str = __name__) -> EnvironmentFacts:
    """Makes, resets and steps the experiment's environment once.

    Args:
        program: The module that does it, in a process of its own.

    Raises:
        UserError: It cannot be made, its observations are not what it declares, or no policy can
            see them or take its actions.
        TemporaryError: The machine lacks disk space, for example.
    """
    env = experiment.env
    with tempfile.TemporaryDirectory() as folder:
        answer, file = Path(folder) / "answer", Path(folder) / "experiment.yaml"
        file.write_text(to_yaml(experiment))
        command = [*shlex.split(experiment.run_under or ""), sys.executable]
        command += ["-m", program, str(file), str(answer)]
        try:
            ended = _run(command)
        except subprocess.TimeoutExpired:
            package = env.rpartition(":")[0]
            what = "create, reset and one step have"
            if package and not _imported(answer).exists():
                what = f"import {package} (which must not train, for example) has"
            raise UserError(f"env: {env}: {what} not ended after {PATIENCE_S:.0f} s") from None
        if not answer.exists():
            last_line = " ".join((ended.stderr.strip() or ended.stdout.strip()).splitlines()[-1:])
            raise UserError(
                f"env: {env}: its process ended with exit code {ended.returncode}: {last_line}"
                f"{_window_hint(experiment, last_line)}"
            )
        facts = EnvironmentFacts(**json.loads(answer.read_text()))
    if facts.problem:
        kind = TemporaryError if facts.passes else UserError
        where = "" if facts.problem.startswith("config.") else f"env: {env}: "
        raise kind(f"{where}{facts.problem}{_window_hint(experiment, facts.problem)}")
    return facts


def _imported(answer: Path) -> Path:
    """Returns the file that is there once the environment's package is imported."""
    return answer.with_suffix(".imported")


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Runs a command; on a timeout or Ctrl-C kills it with all that it has started."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            stdout, stderr = process.communicate(timeout=PATIENCE_S)
        except BaseException:  # A timeout, or Ctrl-C.
            started = psutil.Process(process.pid)
            kill([*started.children(recursive=True), started])
            raise
    return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)


def _window_hint(experiment: Experiment, output: str) -> str:
    if experiment.run_under is not None or not NO_WINDOW.search(output):
        return ""
    return "; if it opens a window, run_under: xvfb-run -a gives it an X server"


Check = Callable[[Experiment, Space[Any], Space[Any]], str]
"""Returns what is wrong with an experiment for the spaces of its policy, or ""."""


def answer(arguments: list[str], facts_of: Callable[[Experiment], EnvironmentFacts]) -> None:
    """Writes the facts of the experiment in a file to another file."""
    experiment, file = read_experiment(Path(arguments[0])).experiment, Path(arguments[1])
    with suppress(UserError):  # Which `facts_of` returns.
        find_spec(experiment.env)
    _imported(file).touch()
    file.write_text(json.dumps(asdict(facts_of(experiment))))


def facts_of(experiment: Experiment, check: Check | None = None) -> EnvironmentFacts:
    """Plays the first step of an experiment's environment in this process."""
    env_id, config = experiment.env, experiment.config
    keeps_dict = config.module is not None
    try:
        env = make_env(env_id, config.env_config, None, config.wrappers, keeps_dict)
    except UserError as error:  # About its observations or actions.
        return EnvironmentFacts(problem=str(error).removeprefix(f"env: {env_id}: "))
    except Exception as error:  # The environment's own code may raise anything.
        passes = getattr(error, "errno", None) in ERRNOS
        problem = f"making it raises {raised(error)}{remedy(error)}"
        if _has_several_agents(env_id, config.env_config):
            problem = SEVERAL_AGENTS
        return EnvironmentFacts(problem=problem, passes=passes)
    seen, acted = env.observation_space, env.action_space
    assert isinstance(env, PolicyAction)
    assert isinstance(env.env, PolicyObservation)
    declared = env.env.env
    return EnvironmentFacts(
        policy_spaces=policy_spaces(seen, acted),
        observation_bytes=_bytes(seen),
        largest=str(largest(entries(declared.observation_space, "observation_space"))),
        actions=str(env.env.action_space),
        discrete=isinstance(acted, Discrete),
        composed=isinstance(acted, MultiDiscrete | Tuple),
        image=len(seen.shape or ()) == 3,
        keeps_dict=isinstance(seen, Dict),
        bounded=not isinstance(acted, Box) or acted.is_bounded(),
        problem=_problem_of(env, declared) or (check(experiment, seen, acted) if check else ""),
    )


def _bytes(seen: Space[Any]) -> int:
    parts = [entry.space for entry in entries(seen, "")]
    return sum(math.prod(part.shape or ()) * np.dtype(part.dtype).itemsize for part in parts)


def _has_several_agents(env_id: str, env_config: dict[str, Any]) -> bool:
    """Whether it is an environment of RLlib's MultiAgentEnv, or of PettingZoo's parallel API."""
    spec = find_spec(env_id)
    try:
        env = creator_of(spec)(**{**spec.kwargs, **env_config})
    except Exception:  # Its own code may raise anything.
        return False
    return hasattr(env, "possible_agents")


def _sampled(space: Space[Any], seen: Any) -> Any:
    """Returns a random action, an allowed one if the policy sees a mask of them."""
    if isinstance(space, Discrete) and isinstance(seen, dict) and ACTION_MASK in seen:
        mask = np.asarray(seen[ACTION_MASK], np.int8)
        return space.sample(mask=mask if mask.shape == (space.n,) else None)
    return space.sample()


def _problem_of(env: PolicyAction, declared: gymnasium.Env[Any, Any]) -> str:
    """Resets and steps an environment as the policy does; returns what is wrong, or "".

    Args:
        declared: The same environment, as it declares itself.
    """
    space = declared.observation_space
    try:
        observation, _ = declared.reset(seed=0)
        if difference := difference_from(space, observation, "observation_space"):
            return f"reset returns an observation outside {difference}"
        assert isinstance(env.env, PolicyObservation)
        action = _sampled(env.action_space, env.env.observation(observation))
        observation, reward, *_ = declared.step(env.action(action))
        if difference := difference_from(space, observation, "observation_space"):
            return f"step returns an observation outside {difference}"
        float(reward)
        env.close()
    except Exception as error:
        return f"resetting and stepping it raises {raised(error)}{remedy(error)}"
    return ""


if __name__ == "__main__":
    answer(sys.argv[1:], facts_of)
