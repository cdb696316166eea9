"""An experiment in MLflow and the runs in it: created, found again, restored if deleted."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from payload.tracking.metrics import STEPS
from payload.tracking.outbox import error_code

if TYPE_CHECKING:
    from payload.tracking.mlflow_run import Tracking

EXPERIMENT_NAME = "volley"
"""Of runs that name no other."""
EXPERIMENT_TAGS = {"mlflow.experimentKind": "custom_model_development"}
"""Makes MLflow's UI open on charts of training instead of traces of language models."""
PARENT = "mlflow.parentRunId"
"""The tag by which MLflow nests a run in another one."""
KEY = "volley.run"
"""The tag by which a run is found again if the answer to its creation was lost."""
ACTIVE, DELETED = "active", "deleted"
"""Stages of an experiment or a run: mlflow.entities.LifecycleStage."""

Say = Callable[[str], None]


def make_experiment(client: Any, tracking: Tracking, say: Say = print) -> str:
    """Returns the id of the run's MLflow experiment, which exists and is not deleted afterwards."""
    name = tracking.experiment_name
    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        place = tracking.artifacts
        return str(
            client.create_experiment(
                name, None if place is None else place.as_uri(), EXPERIMENT_TAGS
            )
        )
    _restore_experiment(client, experiment, say)
    return str(experiment.experiment_id)


def open_run(
    client: Any, tracking: Tracking, run_id: str | None, key: str, started_ms: int, say: Say
) -> Any:
    """Returns the MLflow run of a training, which is not deleted afterwards.

    Args:
        run_id: The run to continue; None for a new one.
        key: Finds a run whose creation was not answered.
        say: Called with a line if something was deleted.
    """
    if run_id is not None:
        try:
            run = client.get_run(run_id)
        except Exception as error:
            if not is_missing(error):
                raise
            say(f"MLflow no longer has run {run_id}: the training continues in a new one")
        else:
            _restore_run(client, run, say)
            return run
    experiment_id = make_experiment(client, tracking, say)
    found = client.search_runs([experiment_id], f"tags.`{KEY}` = '{key}'", max_results=1)
    if found:
        return found[0]
    tags = {**tracking.tags, KEY: key}
    if tracking.parent_file is not None:
        # Until the file exists, this raises and is tried again.
        parent = json.loads(tracking.parent_file.read_text())
        if parent.get("tracking_uri") != tracking.uri:
            raise LookupError(f"the search has no MLflow run at {tracking.uri} yet")
        tags[PARENT] = parent["run_id"]
    return client.create_run(experiment_id, started_ms, tags, tracking.run_name)


def delivered_until(client: Any, run_id: str) -> int:
    """Returns the environment steps up to which MLflow has a run's metrics; -1 without any."""
    history = client.get_metric_history(run_id, STEPS)
    return max((point.step for point in history), default=-1)


def lifecycle_stage(client: Any, run_id: str) -> str:
    """Returns ACTIVE or DELETED, or "" for a run that MLflow does not have."""
    try:
        return str(client.get_run(run_id).info.lifecycle_stage)
    except Exception as error:
        if is_missing(error):
            return ""
        raise


def is_missing(error: Exception) -> bool:
    """Whether MLflow does not have what it was asked for."""
    return error_code(error) == "RESOURCE_DOES_NOT_EXIST"


def _restore_run(client: Any, run: Any, say: Say) -> None:
    _restore_experiment(client, client.get_experiment(run.info.experiment_id), say)
    if run.info.lifecycle_stage == DELETED:
        client.restore_run(run.info.run_id)
        say(f"MLflow's run {run.info.run_id} was deleted: restored, because it is still training")


def _restore_experiment(client: Any, experiment: Any, say: Say) -> None:
    """Restores a deleted experiment, but not the runs that were deleted with it."""
    if experiment.lifecycle_stage == ACTIVE:
        return
    deleted = _deleted_runs(client, experiment.experiment_id)
    client.restore_experiment(experiment.experiment_id)
    for run_id in deleted:
        client.delete_run(run_id)
    say(f"MLflow's experiment {experiment.name} was deleted: restored for the runs that train")


def _deleted_runs(client: Any, experiment_id: str) -> list[str]:
    from mlflow.entities import ViewType

    runs, token = [], None
    while True:
        page = client.search_runs([experiment_id], "", ViewType.DELETED_ONLY, page_token=token)
        runs += [run.info.run_id for run in page]
        token = page.token
        if not token:
            return runs
