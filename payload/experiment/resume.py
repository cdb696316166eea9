"""What a resumed run may change: one rule for `--resume` and for a cluster's queue.

Algorithm, environment, observation, reward, network and seed stay. Stop criteria, placement and
evaluation may change. Every other setting is a hyperparameter: a person may change it with
`--resume`, and the run reports its new value. The queue, which continues runs by itself, starts a
new run when a hyperparameter or a file of the experiment changes.
"""

import hashlib
import json
from typing import Any

from payload.errors import UserError
from payload.experiment.arguments import AS_WRITTEN, canonical
from payload.experiment.settings import Experiment

STAYS = frozenset(
    {*AS_WRITTEN, "module", "observation_filter", "reward_scale"}
    | {"image_size", "image_width", "frame_stack"}
    | {"clip_rewards", "end_return_at_lost_life"}
    | {"network", "fcnet_hidden", "fcnet_hiddens", "fcnet_activation", "conv_filters"}
    | {"vf_share_layers"}
    | {"use_lstm", "lstm_cell_size", "num_quantiles", "dueling", "twin_q"}
    # These only have an effect when a run begins.
    | {"seed", "initial_alpha"}
)
"""Settings of `config` that decide what is learned: environment, reward, network, start."""
CHANGES_NOTHING = frozenset(
    {"num_env_runners", "num_cpus_per_env_runner", "num_learners", "num_gpus_per_learner"}
    | {"evaluation_interval", "evaluation_duration", "evaluation_num_env_runners"}
    | {"env_step_timeout_s", "disable_env_checking", "min_time_s_per_iteration", "info_metrics"}
)
"""Settings of `config` that do not affect what is learned. All others are hyperparameters."""


def resume_key(experiment: Experiment) -> str:
    """Returns a hash of everything that affects what is learned, hyperparameters included.

    The queue continues the unfinished run of an experiment with the same key.
    """
    config = experiment.config.model_dump(mode="json", exclude={*CHANGES_NOTHING, *AS_WRITTEN})
    settings = {f"config.{name}": value for name, value in config.items()}
    text = json.dumps(canonical({**settings, **_what_stays(experiment)}), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def check_resumable(before: Experiment, now: Experiment, where: str) -> list[str]:
    """Returns a line for each hyperparameter that changes.

    Args:
        before: The experiment of the run, from its checkpoint.
        now: The experiment that is to continue it.
        where: The option that requests it, with its value; error messages begin with it.

    Raises:
        UserError: A setting that decides what is learned has changed.
    """
    old, new = _what_stays(before), _what_stays(now)
    for key in dict.fromkeys([*old, *new]):
        if old.get(key) != new.get(key):
            raise UserError(
                f"{where}: {key} is {_in_words(old.get(key))} in this run and cannot become "
                f"{_in_words(new.get(key))}; start a new run"
            )
    searched = now.search.keys()
    return [
        f"config.{name} was {_in_words(value)} and is {_in_words(changed)} from here on"
        for name, value in before.config
        if name not in STAYS | CHANGES_NOTHING | searched
        and (changed := getattr(now.config, name)) != value
    ]


def _what_stays(experiment: Experiment) -> dict[str, Any]:
    """Returns everything that a resumed run may not change, by its key."""
    values = {name: value for name, value in experiment.config if name in STAYS}
    if "image_width" in values:
        values["image_width"] = values["image_width"] or values["image_size"]
    stays: dict[str, Any] = {"run": experiment.run, "env": experiment.env}
    stays |= {f"config.{name}": value for name, value in values.items()}
    if experiment.search:
        spaces = {name: space.to_plain() for name, space in experiment.search.items()}
        stays |= {f"config.{name}": space for name, space in spaces.items()}
        stays |= {"num_samples": experiment.num_samples, "num_seeds": experiment.num_seeds}
    return stays


def _in_words(value: Any) -> str:
    return "the default" if value is None else str(value)
