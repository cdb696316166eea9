"""What train and tune do before they start: check options, provide the environment, start Ray."""

from __future__ import annotations

import argparse
import os
import threading
from dataclasses import replace
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import payload
from payload.commands.arguments import overrides
from payload.errors import UserError, without_secrets

if TYPE_CHECKING:
    from payload.environments.probe import EnvironmentFacts
    from payload.experiment.placement import Cluster
    from payload.experiment.read import LoadedExperiment
    from payload.experiment.settings import Experiment
    from payload.run.checkpoints import Checkpoint
    from payload.run.reporting import TrainOptions
    from payload.run.run_folder import RunFolder
    from payload.run.trust import Signed

AZURE_ML = "azureml://"
URI_SCHEMES = (
    *("http://", "https://", "sqlite:///", "postgresql://", "mysql://", "databricks"),
    AZURE_ML,
)
OWN_MODULE = "payload.algorithms.own_module"
"""The probe that builds a network of one's own too; it imports RLlib, which takes seconds."""
TRACKING_URI = "MLFLOW_TRACKING_URI"
EXPERIMENT_NAME = "MLFLOW_EXPERIMENT_NAME"
"""MLflow's own variables."""


def check_run_options(options: argparse.Namespace) -> None:
    """Raises UserError for a number or a folder that cannot be used."""
    from payload.run.machine_limits import lift_machine_limits

    lift_machine_limits()
    for option in ("samples", "seeds"):
        if getattr(options, option) is not None:
            check_positive(f"--{option}", getattr(options, option))
    check_positive("--checkpoint-every", options.checkpoint_every)
    check_positive("--keep-checkpoints", options.keep_checkpoints)
    check_status(options.status)
    if options.env_runners is not None and not options.env_runners.absolute().parent.is_dir():
        raise UserError(f"--env-runners {options.env_runners}: the folder does not exist")
    choose_tracking_uri(options)
    if options.name is not None:
        from payload.run.run_folder import check_name

        check_name(options.results, options.name)
    for option in ("name", "init_from"):
        if options.resume is not None and getattr(options, option) is not None:
            raise UserError(f"--{option.replace('_', '-')}: a resumed run has it already")
    if options.init_from is not None:
        options.init_from = _initial_checkpoint(options.init_from, options.trust)


def _initial_checkpoint(path: Path, trust: bool) -> Checkpoint:
    """Returns the checkpoint of --init-from; asks before its pickles are read."""
    from payload.run.checkpoint_policy import needs_pickle
    from payload.run.checkpoints import Checkpoint, whole_checkpoint
    from payload.run.trust import check_trust, code_of

    checkpoint = Checkpoint(whole_checkpoint(path).path.absolute())
    code = code_of(checkpoint.experiment(), needs_pickle(checkpoint))
    check_trust(str(checkpoint.path), [checkpoint.signed], code, trust)
    return checkpoint


def check_status(file: Path | None) -> None:
    """Raises UserError unless it is None or lies in a folder that exists."""
    if file is not None and not file.absolute().parent.is_dir():
        raise UserError(f"--status {file}: the folder does not exist")


def choose_tracking_uri(options: argparse.Namespace) -> None:
    """Sets `tracking_uri` from MLFLOW_TRACKING_URI, unless the option is given; prints that.

    Raises:
        UserError: The option cannot be the URI of an MLflow server. A variable that cannot, such as
            a folder, may be for other programs: a line says that it is not used.
    """
    uri, variable = options.tracking_uri, os.environ.get(TRACKING_URI, "")
    if uri is not None and (problem := _problem_with(uri)):
        raise UserError(f"--tracking-uri {uri}: {problem}")
    if uri is not None or not variable:
        return
    shown = f"{TRACKING_URI}={without_secrets(variable)}"
    if problem := _problem_with(variable):
        print(
            f"{shown} is not used: {problem}. MLflow's database is in {options.results}", flush=True
        )
    else:
        options.tracking_uri = variable
        print(f"MLflow: {shown}", flush=True)


def _problem_with(uri: str) -> str:
    """Returns why a URI cannot be that of an MLflow server; "" if it can."""
    if not uri.startswith(URI_SCHEMES):
        return f"must start with one of {', '.join(URI_SCHEMES)}"
    if uri.startswith(AZURE_ML) and not entry_points(group="mlflow.tracking_store", name="azureml"):
        return (
            "azureml-mlflow is not installed. Next: pip install --no-deps azureml-mlflow && "
            "pip install azure-common azure-mgmt-core jsonpickle msrest pytz"
        )
    return ""


def check_results(options: argparse.Namespace) -> None:
    """Checks that a run can write its files and, without a server, its MLflow run there.

    Raises:
        UserError: It cannot.
        TemporaryError: It cannot now: the disk is full, the database locked.
    """
    from payload.run.run_folder import check_writable
    from payload.tracking.database import check_database
    from payload.tracking.mlflow_run import DATABASE

    check_writable(options.results)
    if options.tracking_uri is None:
        check_database(options.results / DATABASE)


def check_wandb(experiment: Experiment) -> None:
    """Raises UserError unless Weights & Biases can get the metrics that it is to have."""
    if experiment.wandb is None:
        return
    where = f"wandb: {experiment.wandb}"
    if find_spec("wandb") is None:
        raise UserError(
            f"{where}: the package wandb is not installed. Next: pip install wandb, or "
            "pip_packages: [wandb]"
        )
    if not os.environ.get("WANDB_API_KEY") and os.environ.get("WANDB_MODE") != "offline":
        raise UserError(
            f"{where}: WANDB_API_KEY is not set; on a cluster: --secret WANDB_API_KEY. Without an "
            "account: WANDB_MODE=offline"
        )


def check_positive(option: str, value: float) -> None:
    if not value > 0:
        raise UserError(f"{option} {value:g}: must be greater than 0")


def train_options(options: argparse.Namespace) -> TrainOptions:
    """Returns the options of the command line that the run itself needs."""
    from payload.run.reporting import TrainOptions

    return TrainOptions(
        options.results,
        options.tracking_uri,
        options.checkpoint_every,
        options.keep_checkpoints,
        options.status,
        options.env_runners,
        options.init_from,
    )


def load_experiment(options: argparse.Namespace, resumed: RunFolder | None) -> LoadedExperiment:
    """Reads the file or a resumed run's newest checkpoint; the command line takes precedence."""
    from payload.experiment.read import read_experiment
    from payload.experiment.resume import check_resumable

    command_line = overrides(options)
    file, before = options.file, None
    if resumed is not None:
        check_resumed(resumed, options.trust)
        newest = resumed.checkpoints().newest_whole()
        if newest is None:
            raise UserError(f"--resume {resumed.path}: every checkpoint is damaged")
        file, before = file or newest.experiment_file, newest.experiment()
    layers = [command_line] if file is None else [file, command_line]
    loaded = read_experiment(*layers)
    loaded = replace(loaded, experiment=_named(loaded.experiment))
    if resumed is None or before is None:
        return loaded
    changes = check_resumable(before, loaded.experiment, f"--resume {resumed.path}")
    return replace(loaded, notes=[*loaded.notes, *changes])


def _named(experiment: Experiment) -> Experiment:
    """Returns the experiment with MLflow's variable for its name, unless it has a name."""
    variable = os.environ.get(EXPERIMENT_NAME)
    if experiment.experiment_name is not None or not variable:
        return experiment
    print(f"MLflow: {EXPERIMENT_NAME}={variable}", flush=True)
    return experiment.model_copy(update={"experiment_name": variable})


def check_resumed(run: RunFolder, trust: bool, *own: Signed, below: str = "") -> None:
    """Asks before a run is resumed that this user has not made on this machine.

    A cluster's job asks nobody: its folder is the cluster's own.

    Args:
        own: Signatures besides those of the checkpoints.
        below: A pattern of the folders with checkpoints; "" for the run's own.

    Raises:
        UserError: It is not trusted.
    """
    from payload.experiment.read import read_experiment
    from payload.run.ray_cluster import is_job
    from payload.run.run_folder import RunFolder
    from payload.run.trust import check_trust, code_of

    if is_job():
        return
    folders = [RunFolder(path) for path in run.path.glob(below)] if below else [run]
    checkpoints = [each for folder in folders for each in folder.checkpoints().newest_first()]
    files = [run.experiment_file, *(each.experiment_file for each in checkpoints)]
    texts: dict[str, list[str]] = {}
    for file in filter(Path.is_file, files):
        for kind, text in code_of(read_experiment(file).experiment, pickles=True).items():
            texts.setdefault(kind, []).append(text)
    code = {kind: "; ".join(dict.fromkeys(of_kind)) for kind, of_kind in texts.items()}
    check_trust(f"--resume {run.path}", [*own, *(each.signed for each in checkpoints)], code, trust)


def provide_environment(
    options: argparse.Namespace,
    experiment: Experiment,
    trained: list[Experiment],
    resumed: RunFolder | None = None,
) -> tuple[Path | None, bool]:
    """Prepares this process to run the environment; checks that each experiment can learn it.

    Args:
        resumed: The run to continue, whose policy must fit the environment.

    Returns:
        The folder of installed packages, and whether the environment is an Atari game.
    """
    from payload.environments.machine_requirements import provide, provide_inputs
    from payload.environments.probe import probe
    from payload.experiment.hidden_modules import hidden_modules
    from payload.experiment.placement import place
    from payload.run.notify import check_notify
    from payload.run.ray_cluster import is_job, this_machine

    check_notify(experiment)
    installed = None
    if is_job():
        provide_inputs(experiment, options.results)
    else:
        # Ray puts the current folder on the path of its workers.
        for line in hidden_modules(Path.cwd()):
            raise UserError(line)
        installed = provide(experiment, options.results)
    check_wandb(experiment)
    from payload.algorithms.check_environment import check_algorithm, facts_of_game
    from payload.environments.atari import game_of

    atari = game_of(experiment) is not None
    program = [OWN_MODULE] if experiment.config.module else []
    facts = None if atari else probe(experiment, *program)
    if atari and program:
        probe(experiment, *program)
    for candidate in trained:
        check_algorithm(candidate, facts or facts_of_game(candidate))
    if facts is not None and resumed is not None:
        _check_policy_fits(resumed, facts)
    if options.address is None:
        # On this machine the answer is known before Ray starts.
        place(experiment.config, this_machine(), shrink=options.env_runners is not None)
    return installed, atari


def _check_policy_fits(run: RunFolder, facts: EnvironmentFacts) -> None:
    newest = run.checkpoints().newest_whole()
    if newest is None or (before := newest.policy_spaces()) == facts.policy_spaces:
        return
    raise UserError(
        f"--resume {run.path}: in the environment now, {facts.policy_spaces}, but in this run "
        f"{before}; start a new run"
    )


def start_ray(
    options: argparse.Namespace, experiment: Experiment, installed: Path | None
) -> Cluster:
    """Starts Ray on this machine, or connects to a cluster; returns its machines."""
    from payload.run.ray_cluster import check_nodes, connect

    if options.address is None:
        print("Starting Ray on this machine ...", flush=True)
    # While Ray's processes start, this one imports RLlib.
    importing = threading.Thread(target=_import_rllib, daemon=True)
    importing.start()
    # Ray packs the staged files while it connects.
    with TemporaryDirectory() as staging:
        cluster = connect(options.address, _runtime_env(options, experiment, installed, staging))
    if options.address is not None:
        check_nodes(experiment)
    importing.join()
    return cluster


def _runtime_env(
    options: argparse.Namespace, experiment: Experiment, installed: Path | None, staging: str
) -> dict[str, Any] | None:
    from payload.environments.runtime_env import local_runtime_env, runtime_env
    from payload.run.ray_cluster import is_job
    from payload.run.ray_folder import make_ray_folder

    if is_job():
        return None
    if options.address is None:
        under = experiment.run_under
        return None if under is None else local_runtime_env(under, make_ray_folder())
    return runtime_env(experiment, Path(payload.__file__).parent, installed, Path(staging))


def _import_rllib() -> None:
    import payload.run.train  # noqa: F401
