"""A network of one's own takes the place of RLlib's, or is refused in one line."""

from __future__ import annotations

from typing import Any

import pytest
from ray.rllib.core.rl_module.rl_module import RLModuleSpec

from payload.algorithms.algorithm_config import algorithm_config
from payload.algorithms.own_module import problem_of_module
from payload.environments.make_env import make_env
from payload.environments.space_entries import policy_spaces
from payload.errors import UserError
from payload.experiment.derived_defaults import with_defaults
from payload.experiment.read import read_experiment
from payload.experiment.settings import ALGORITHMS, Experiment

MASKED = "tests.payload.faulty_environment.masked"
ACTION_MASK = "ray.rllib.examples.rl_modules.classes.action_masking_rlm:ActionMaskingTorchRLModule"


def experiment_of(module: str, run: str = "PPO", **config: Any) -> Experiment:
    values = {"run": run, "env": f"{MASKED}:Masked-v0", "config": {"module": module, **config}}
    return read_experiment(values).experiment


def problem_of(experiment: Experiment) -> str:
    env = make_env(experiment.env, {}, keeps_dict=True)
    assert policy_spaces(env.observation_space, env.action_space) == (
        "observations are {action_mask: Box(4,), observations: Box(3,)}, actions Discrete(4)"
    )
    return problem_of_module(experiment, env.observation_space, env.action_space)


@pytest.mark.parametrize("run", sorted(set(ALGORITHMS) - {"PQN"}))  # For Atari games alone.
def test_every_algorithm_takes_it(run: str) -> None:
    experiment = experiment_of(f"{MASKED}:Linear", run, module_config={"bias": False})
    config = algorithm_config(experiment, with_defaults(experiment, False, 0))
    spec = config.get_rl_module_spec()
    assert isinstance(spec, RLModuleSpec)
    assert spec.module_class.__name__ == "Linear"
    assert spec.model_config["bias"] is False


def test_rllibs_own_action_mask_fits() -> None:
    assert not problem_of(experiment_of(ACTION_MASK, module_config={"fcnet_hiddens": [8]}))
    assert not problem_of(experiment_of(f"{MASKED}:Linear", module_config={"bias": True}))


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (f"{MASKED}:Linear", "building it raises KeyError: 'bias'"),
        (f"{MASKED}:NoModule", "NoModule must be a subclass of TorchRLModule"),
        (f"{MASKED}:Linnear", f"{MASKED} has no Linnear (did you mean Linear?)"),
        (f"{MASKED}_:Linear", "Set source_directory to the folder that contains it"),
    ],
)
def test_what_cannot_be_built_is_one_line(module: str, words: str) -> None:
    problem = problem_of(experiment_of(module))
    assert problem.startswith(f"config.module: {module}: ")
    assert words in problem


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"module": "Linear"}, "config.module: Linear: must be package:Class, a TorchRLModule"),
        ({"module_config": {"bias": True}}, "config.module_config: needs config.module: package:"),
    ],
)
def test_what_no_experiment_may_say_is_one_line(config: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError) as error:
        read_experiment({"run": "PPO", "env": "Any-v0", "config": config})
    assert words in str(error.value)
