"""`make sizes` with an Azure CLI that answers as Azure's does."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from infra.config.update_sizes import in_lines, main
from infra.config.vm_sizes import FILE, LISTED, SIZES, SizesFile
from rehearsal.azure.resources import resource_skus

SKUS = resource_skus.listed("eastus", {"Standard_D2as_v5": ()})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return Path(shutil.copy(FILE, tmp_path / "sizes.json"))


@pytest.fixture
def az(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of PATH; `answers` puts an Azure CLI into it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def answers(az: Path, skus: list[dict[str, Any]], code: int = 0) -> None:
    """Makes an Azure CLI that prints these SKUs and fails unless it is asked for eastus's."""
    (az / "skus.json").write_text(json.dumps(skus))
    script = (
        '#!/bin/sh\n[ "$1 $2 $3" = "vm list-skus --resource-type" ] || exit 9\n'
        f"echo 'Please run az login' >&2\n/bin/cat {az}/skus.json\nexit {code}\n"
    )
    (az / "az").write_text(script)
    (az / "az").chmod(0o755)


def test_the_file_has_a_line_a_size() -> None:
    assert in_lines(LISTED) == FILE.read_text()


@pytest.mark.slow
def test_what_azure_lists_replaces_what_the_file_says(file: Path, az: Path) -> None:
    (sku,) = [sku for sku in SKUS if sku["name"] == "Standard_E8ds_v7"]
    changed = [{"name": "MaxResourceVolumeMB", "value": "614400"}]
    other = {**sku, "capabilities": [*sku["capabilities"], *changed]}
    other["capabilities"] = [
        {"name": name, "value": {"EphemeralOSDiskSupported": "True"}.get(name, one["value"])}
        for one in other["capabilities"]
        if (name := one["name"]) != "SupportedEphemeralOSDiskPlacements"
    ]
    answers(az, [other if one is sku else one for one in SKUS])
    assert main([], file) == 0
    written = SizesFile.model_validate_json(file.read_text())
    assert written.machines()["Standard_E8ds_v7"].local_disk_gib == 600
    # Neither restrictions nor zones of one subscription and location are kept.
    same = {size: machine for size, machine in SIZES.items() if size != "Standard_E8ds_v7"}
    assert {size: written.machines()[size] for size in same} == same
    assert written.source == "Azure's resource SKUs of eastus"


@pytest.mark.slow
def test_a_size_that_the_location_lacks_stays_and_is_named(file: Path, az: Path) -> None:
    answers(az, [sku for sku in SKUS if sku["name"] != "Standard_D8s_v5"])
    assert main([], file) == 0
    written = SizesFile.model_validate_json(file.read_text())
    assert written.machines()["Standard_D8s_v5"] == SIZES["Standard_D8s_v5"]
    assert written.source.endswith(": Standard_D8s_v5")


@pytest.mark.slow
def test_without_a_list_the_file_stays(
    file: Path, az: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([], file) == 2
    answers(az, SKUS, code=1)
    assert main([], file) == 2
    answers(az, [])
    assert main([], file) == 2
    assert main(["--location", "eastuss"], file) == 2
    assert capsys.readouterr().err.splitlines() == [
        "sizes: needs the Azure CLI, with az login; sizes.json is unchanged",
        "sizes: Please run az login; sizes.json is unchanged",
        "sizes: Azure lists no size in eastus; sizes.json is unchanged",
        "sizes: --location eastuss: is not an Azure location (did you mean eastus?)",
    ]
    assert file.read_text() == FILE.read_text()
