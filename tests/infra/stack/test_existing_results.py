"""An existing results account: `up` warns where it would bill all that is replaced."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pulumi
import pytest

from rehearsal.azure.resources.azure_stand_in import Azure
from rehearsal.drivers.in_process import InProcess
from tests.infra.declared_stack import EXISTING_ACCOUNT, REQUIRED, declare_stack

SERVICE = "azure-native:storage:BlobServiceProperties"
OF_AN_EARLIER_VOLLEY = {
    "isVersioningEnabled": True,
    "deleteRetentionPolicy": {"enabled": True, "days": 7},
}


def warnings_of(folder: Path, patch: pytest.MonkeyPatch, service: dict[str, Any] | None) -> str:
    """Returns the warnings of an `up` with an account that has these settings."""
    warnings: list[str] = []
    patch.setattr(pulumi.log, "warn", warnings.append)
    azure = Azure(folder / "azure.json")
    if service is not None:
        account_id = EXISTING_ACCOUNT["resultsAccountId"]
        azure.create(SERVICE, f"{account_id}/blobServices/default", service)
    result = InProcess(azure).up({**REQUIRED, **EXISTING_ACCOUNT})
    assert not result.error
    return "\n".join(warnings)


@pytest.mark.slow
@pytest.mark.parametrize("missing", ["isVersioningEnabled", "deleteRetentionPolicy"])
def test_an_account_that_keeps_what_is_replaced_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    service = {key: value for key, value in OF_AN_EARLIER_VOLLEY.items() if key != missing}
    warning = warnings_of(tmp_path, monkeypatch, service)
    assert "The results account oldresults keeps versions or soft-deleted blobs" in warning
    assert "Next: az storage account blob-service-properties update" in warning


@pytest.mark.slow
def test_the_settings_that_a_stack_declares_need_no_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = declare_stack().one("BlobServiceProperties")
    assert warnings_of(tmp_path, monkeypatch, service) == ""


@pytest.mark.slow
def test_an_account_that_cannot_be_looked_at_does_not_end_the_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "was not checked" in warnings_of(tmp_path, monkeypatch, None)
