"""A network of one's own: `module: package:Class`, a TorchRLModule, and its `module_config`.

    python -m payload.algorithms.own_module EXPERIMENT ANSWER

does what payload/environments/probe.py does, and builds the module for the environment.
"""

import logging
import sys
from typing import Any

import gymnasium
from gymnasium.vector import AutoresetMode
from ray.rllib.core import DEFAULT_MODULE_ID

from payload.algorithms.algorithm_config import algorithm_config
from payload.environments.atari import game_of, make_vector_env
from payload.environments.missing_packages import remedy
from payload.environments.policy_observation import PolicyObservationVector
from payload.environments.probe import EnvironmentFacts, answer, facts_of
from payload.errors import UserError, raised
from payload.experiment.derived_defaults import with_defaults
from payload.experiment.settings import Experiment


def problem_of_module(
    experiment: Experiment, seen: gymnasium.Space[Any], acted: gymnasium.Space[Any]
) -> str:
    """Builds the module of an experiment for the spaces of a policy; returns what fails, or ""."""
    settings = with_defaults(experiment, game_of(experiment) is not None, num_env_runners=0)
    try:
        config = algorithm_config(experiment, settings)
        spec = config.get_rl_module_spec(spaces={DEFAULT_MODULE_ID: (seen, acted)})
        # RLlib's own `spec.build` calls it once more where an attribute is missing.
        spec.module_class(
            observation_space=spec.observation_space,
            action_space=spec.action_space,
            inference_only=False,
            model_config=spec.model_config,
            catalog_class=spec.catalog_class,
        )
    except UserError as error:
        return str(error)
    except Exception as error:  # The module's own code may raise anything.
        name = experiment.config.module
        return f"config.module: {name}: building it raises {raised(error)}{remedy(error)}"
    return ""


def _facts_of(experiment: Experiment) -> EnvironmentFacts:
    game = game_of(experiment)
    if game is None:
        return facts_of(experiment, problem_of_module)
    env = PolicyObservationVector(make_vector_env(game, 1, autoreset=AutoresetMode.NEXT_STEP))
    seen, acted = env.single_observation_space, env.single_action_space
    env.close()
    return EnvironmentFacts(problem=problem_of_module(experiment, seen, acted))


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    answer(sys.argv[1:], _facts_of)
