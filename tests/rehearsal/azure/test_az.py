"""The login of the user who runs Pulumi."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import requests

from rehearsal.azure import az
from tests.rehearsal.azure.resources.scale_set_cloud import HEAD, cloud

ASK = ["account", "get-access-token", "--output", "json", "--resource"]


@pytest.mark.slow
def test_the_owner_may_start_the_head(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert az.main([*ASK, "https://management.azure.com"]) == 0
    token = json.loads(capsys.readouterr().out)["accessToken"]
    with cloud(tmp_path) as azure:
        answer = requests.post(
            f"{azure.url}{HEAD}/start?api-version=2024-07-01",
            headers={"Authorization": f"Bearer {token}"},
            timeout=10,
        )
    assert answer.status_code == 202


def test_anything_else_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert az.main(["vm", "list"]) == 2
    assert "access tokens only" in capsys.readouterr().err
