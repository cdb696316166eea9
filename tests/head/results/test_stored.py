"""What the results account bills is counted in a real Blob service."""

from __future__ import annotations

import json
import time
from types import ModuleType
from typing import Any

import pytest
from azure.core.exceptions import ServiceRequestError

from tests.head.relocated import relocated
from tests.head.results.cluster import KEY, Cluster

pytestmark = pytest.mark.slow


@pytest.fixture
def stored(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """head.stored of the cluster, whose Python environment takes a byte."""
    monkeypatch.setenv("RESULTS_CONTAINER", "results")
    monkeypatch.setenv("ENVIRONMENT_CONTAINER", "environments")
    module = relocated("head.stored", cluster.home.parents[2])
    environment = [type("Blob", (), {"name": "hash.tar", "size": 1})]
    other = type("Container", (), {"list_blobs": lambda _, **__: environment})()
    monkeypatch.setattr(
        module, "container", lambda name: cluster.blobs if name == "results" else other
    )
    return module


def counted(cluster: Cluster) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads((cluster.state / "stored.json").read_text())
    return answer


def test_the_bytes_of_each_experiment_and_of_everything_are_counted(
    cluster: Cluster, stored: ModuleType
) -> None:
    cluster.write_run("a/progress.csv", "12345")
    cluster.log_metric(1)
    assert cluster.save()
    stored.count_if_due()
    # The newest state and its first copy.
    database = 2 * cluster.blobs.get_blob_client("mlflow.db.gz").get_blob_properties().size
    assert counted(cluster)["runs"] == {KEY: 5}
    assert counted(cluster)["everything"] == 5 + database + 1


def test_it_is_counted_once_an_hour(cluster: Cluster, stored: ModuleType) -> None:
    stored.count_if_due()
    cluster.write_run("a/progress.csv", "12345")
    assert cluster.save()
    stored.count_if_due()
    assert counted(cluster)["runs"] == {}
    file = cluster.state / "stored.json"
    file.write_text(json.dumps({**counted(cluster), "time": time.time() - stored.EVERY_S}))
    stored.count_if_due()
    assert counted(cluster)["runs"] == {KEY: 5}


def test_an_account_that_does_not_answer_leaves_the_last_count(
    cluster: Cluster, stored: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {"everything": 7, "runs": {}, "time": 0.0}
    (cluster.state / "stored.json").write_text(json.dumps(before))

    def away(_: Any) -> None:
        raise ServiceRequestError("no route")

    cluster.before_request = away
    stored.count_if_due()
    assert counted(cluster) == before
    assert "was not counted: no route" in capsys.readouterr().out
