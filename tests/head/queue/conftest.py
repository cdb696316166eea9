"""A Ray cluster of two CPUs with a dashboard, and heads that share it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, chdir
from pathlib import Path

import pytest
from mlflow import MlflowClient
from ray.cluster_utils import Cluster

from tests.free_port import free_port
from tests.head.queue.played_queue import Played
from tests.head.queue.queue_head import Head
from tests.local_ray import short_lived_cluster


@pytest.fixture(scope="module")
def ray_with_dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    arguments = {"num_cpus": 2, "include_dashboard": True}
    ports = {"dashboard_port": free_port(), "dashboard_agent_listen_port": free_port()}
    with pytest.MonkeyPatch.context() as environment, ExitStack() as until_end:
        environment.setenv("RAY_JOB_STOP_WAIT_TIME_S", "20")
        # Jobs run in this folder, and MLflow keeps artifacts there.
        with chdir(tmp_path_factory.mktemp("jobs")):
            cluster = until_end.enter_context(short_lived_cluster({**arguments, **ports}))
        yield cluster


@pytest.fixture(scope="module")
def mlflow_database(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An embedded database, created here because two concurrent runs cannot both create it."""
    uri = f"sqlite:///{tmp_path_factory.mktemp('mlflow')}/mlflow.db"
    MlflowClient(uri).search_experiments()
    return uri


@pytest.fixture
def head(tmp_path: Path) -> Head:
    return Head(tmp_path)


@pytest.fixture(scope="module")
def cluster_head(
    tmp_path_factory: pytest.TempPathFactory, ray_with_dashboard: Cluster, mlflow_database: str
) -> Head:
    """A head that uses the shared Ray cluster."""
    dashboard = f"http://{ray_with_dashboard.webui_url}"
    variables = {"RAY_API_SERVER_ADDRESS": dashboard, "MLFLOW_TRACKING_URI": mlflow_database}
    return Head(tmp_path_factory.mktemp("head"), variables)


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Played]:
    played = Played(tmp_path, monkeypatch)
    yield played
    played.end()
