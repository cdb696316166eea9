"""`volley tune`: a search over settings, new or resumed."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from typing import TYPE_CHECKING

from payload.commands.prepare import (
    check_results,
    check_resumed,
    check_run_options,
    load_experiment,
    provide_environment,
    start_ray,
    train_options,
)
from payload.errors import UserError

if TYPE_CHECKING:
    from payload.search.search_plan import Plan


def tune(options: argparse.Namespace) -> int:
    """Searches until every trial has ended; returns the exit code.

    Raises:
        UserError: The options, the experiment or the search space cannot be used.
    """
    from payload.atomic_file import replace_text
    from payload.experiment.derived_defaults import for_atari_only, notes_on_defaults
    from payload.experiment.file import to_yaml
    from payload.experiment.placement import place_trials
    from payload.experiment.read import read_experiment
    from payload.experiment.resume import check_resumable
    from payload.run.driver_lock import driver_lock
    from payload.search.search_folder import create_search_folder, find_search_to_resume
    from payload.search.search_plan import Plan, make_plan

    check_run_options(options)
    resumed = None
    if options.resume is not None:
        resumed = find_search_to_resume(options.results, options.resume)
        check_resumed(resumed, options.trust, resumed.signed, below="*/")
        options.file = options.file or resumed.experiment_file
    loaded = load_experiment(options, None)
    experiment = loaded.experiment
    if resumed is None:
        plan = make_plan(experiment, options.samples, options.seeds)
    else:
        plan = Plan.read(resumed.plan_file)
        if options.samples is not None or options.seeds is not None:
            raise UserError("--resume: --samples and --seeds cannot change; start a new search")
        before = read_experiment(resumed.experiment_file).experiment
        loaded.notes.extend(check_resumable(before, experiment, f"--resume {resumed.path}"))
    check_results(options)
    trials = [trial.experiment(experiment) for trial in plan.trials()]
    installed, atari = provide_environment(options, experiment, trials)
    for name in [] if atari else for_atari_only(experiment.config):
        if name in experiment.search:
            raise UserError(
                f"config.{name}: cannot be searched: {experiment.env} is not an Atari game"
            )
    with ExitStack() as until_end:
        if resumed is not None:
            until_end.enter_context(driver_lock(resumed))
            # The next resume begins with what this one changes.
            replace_text(resumed.experiment_file, to_yaml(experiment))
            resumed.signed.sign()
        cluster = start_ray(options, experiment, installed)
        env_runners = place_trials(experiment.config, cluster, len(trials))
        from payload.search.run_search import search
        from payload.search.trial import Job

        folder = resumed or create_search_folder(options.results, experiment, plan, options.name)
        if resumed is None:
            until_end.enter_context(driver_lock(folder))
        trial_by_name = {trial.name: trial for trial in plan.trials()}
        # A trial's process may have another working directory.
        options.results = options.results.absolute()
        folder = type(folder)(folder.path.absolute())
        run = train_options(options)
        job = Job(experiment, folder, run, trial_by_name, atari, env_runners)
        notes = loaded.notes + notes_on_defaults(experiment, atari) + _notes_on_plan(plan)
        return search(job, plan, cluster, notes)


def _notes_on_plan(plan: Plan) -> list[str]:
    settings, seeds = len(plan.settings), len(plan.seeds)
    each = f", {seeds} seeds each" if seeds > 1 else ""
    return [f"{settings} settings{each}: {settings * seeds} trials"]
