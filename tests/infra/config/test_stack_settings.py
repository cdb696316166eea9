"""The stack's configuration: its meaning, and its agreement with the files that mention it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from infra.config.document import with_config, with_table
from infra.config.read_stack import read_settings
from infra.config.stack_settings import StackSettings
from tests.documents import table_rows
from tests.infra.declared_stack import REQUIRED
from tests.project import ROOT


def read(**config: str) -> StackSettings:
    return read_settings({**REQUIRED, **config}, ROOT)


@pytest.fixture
def project() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "Pulumi.yaml").read_text())
    return loaded


def test_two_values_make_a_stack() -> None:
    assert read().head.gpus == 1


@pytest.mark.parametrize("size", ["STANDARD_NC4AS_T4_V3", "NC4as_T4_v3", "nc4as_t4_v3"])
def test_a_size_is_known_however_it_is_spelt(size: str) -> None:
    assert read(headSize=size).head_size == "Standard_NC4as_T4_v3"


# What `make docs` writes


@pytest.mark.parametrize(
    ("name", "document"), [("Pulumi.yaml", with_config), ("docs/configuration.md", with_table)]
)
def test_the_settings_are_written_as_they_are(name: str, document: Callable[[str], str]) -> None:
    text = (ROOT / name).read_text()
    assert document(text) == text, "run make docs"


def test_pulumi_reads_every_setting(project: dict[str, Any]) -> None:
    for field in StackSettings.model_fields.values():
        declared = project["config"][field.alias]
        assert declared["default"] == field.default, field.alias
        assert declared["description"], field.alias


def test_every_setting_is_in_the_table(project: dict[str, Any]) -> None:
    rows = table_rows("docs/configuration.md", "All settings")
    assert list(rows) == list(project["config"])
    assert rows["maxWorkers"][0] == "`4`"
    assert rows["sshPublicKey"][0] == ""


# Pulumi.dev.yaml


@pytest.fixture
def dev() -> dict[str, str]:
    """The settings in Pulumi.dev.yaml, as Pulumi passes them."""
    stack = yaml.safe_load((ROOT / "Pulumi.dev.yaml").read_text())
    return {
        key.removeprefix("volley:"): value if isinstance(value, str) else json.dumps(value)
        for key, value in stack["config"].items()
        if key.startswith("volley:")
    }


def test_the_dev_stack_needs_two_values_more(dev: dict[str, str]) -> None:
    assert set(dev).isdisjoint(REQUIRED)
    assert read(**dev)


def test_the_dev_stack_trains_on_the_head_until_its_workers_come(dev: dict[str, str]) -> None:
    settings = read(**dev)
    assert (settings.scaling, settings.min_workers, settings.max_workers) == ("demand", 0, 4)
