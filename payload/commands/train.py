"""`volley train`: one training run, new or resumed."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from payload.command_line import command_name
from payload.commands.prepare import (
    check_results,
    check_run_options,
    load_experiment,
    provide_environment,
    start_ray,
    train_options,
)
from payload.commands.tune import tune
from payload.errors import UserError

if TYPE_CHECKING:
    from payload.experiment.settings import Experiment
    from payload.experiment.settings_of_every_algorithm import AlgorithmSettings


def train(options: argparse.Namespace) -> int:
    """Trains until a stop criterion is met; returns the exit code.

    Raises:
        UserError: The options, the experiment or a checkpoint cannot be used.
    """
    from payload.experiment.derived_defaults import notes_on_defaults, with_defaults
    from payload.experiment.placement import place
    from payload.run import run_folder
    from payload.run.driver_lock import driver_lock
    from payload.search.search_folder import is_search_folder

    if options.resume is not None and is_search_folder(Path(options.resume)):
        return tune(options)  # Several seeds.
    check_run_options(options)
    resumed = None
    if options.resume is not None:
        resumed = run_folder.find_run_to_resume(options.results, options.resume)
    loaded = load_experiment(options, resumed)
    experiment = loaded.experiment
    _check_no_search(experiment)
    if resumed is None and (options.seeds or experiment.num_seeds or 1) > 1:
        return tune(options)
    check_results(options)
    installed, atari = provide_environment(options, experiment, [experiment], resumed)
    with ExitStack() as until_end:
        if resumed is not None:
            until_end.enter_context(driver_lock(resumed))
        cluster = start_ray(options, experiment, installed)
        # The number in the file may not fit yet; a single env runner is enough to start.
        shrink = options.env_runners is not None
        settings = with_defaults(experiment, atari, place(experiment.config, cluster, shrink))
        from payload.algorithms.algorithm_config import check_config
        from payload.run.train import train

        check_config(experiment, settings)  # If RLlib refuses, no folder is left.
        folder = resumed or run_folder.create_run_folder(
            options.results, experiment, name=options.name
        )
        if resumed is None:
            until_end.enter_context(driver_lock(folder))
        checkpoints = resumed.checkpoints().newest_first() if resumed is not None else []
        notes = [
            *loaded.notes,
            *notes_on_defaults(experiment, atari),
            *_notes_on_search(experiment),
            *_notes_on_env_runners(options, settings),
        ]
        return train(experiment, settings, folder, train_options(options), checkpoints, notes)


def _check_no_search(experiment: Experiment) -> None:
    if experiment.search:
        name = next(iter(experiment.search))
        volley = command_name()
        raise UserError(
            f"config.{name}: {experiment.search[name]} is a search space, which {volley} tune "
            f"searches; {volley} train needs a single value"
        )


def _notes_on_env_runners(options: argparse.Namespace, settings: AlgorithmSettings) -> list[str]:
    if options.env_runners is None or settings.num_env_runners:
        return []
    return [
        f"--env-runners {options.env_runners} is ignored: config.num_env_runners is 0, "
        "so the driver samples itself"
    ]


def _notes_on_search(experiment: Experiment) -> list[str]:
    if "num_samples" not in experiment.model_fields_set:
        return []
    return ["num_samples is ignored: train does not search"]
