"""If a stack cannot be declared, the program ends with one message and declares nothing."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pulumi
import pytest
from pulumi.runtime import MockCallArgs, MockResourceArgs, Mocks

from infra.__main__ import main
from tests.infra.declared_stack import REQUIRED
from tests.project import ROOT


class Nothing(Mocks):
    """An engine that fails the test if it is asked for anything but the stack."""

    def new_resource(self, args: MockResourceArgs) -> tuple[str, dict[str, Any]]:
        assert args.typ == "pulumi:pulumi:Stack", args.name
        return "stack", {}

    def call(self, args: MockCallArgs) -> Any:
        raise AssertionError(args.token)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"headSize": "Standard_NC6"}, "its successor is Standard_NC4as_T4_v3"),
        (
            {"pipPackages": json.dumps([f"package-number-{i}" for i in range(5000)])},
            "more than Azure's 65,535",
        ),
    ],
)
def test_what_cannot_be_declared_is_told_before_anything_is_created(
    config: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulumi, "get_root_directory", lambda: str(ROOT))

    async def program() -> None:
        pulumi.runtime.set_mocks(Nothing(), project="volley", stack="dev")
        given = {**REQUIRED, "checkQuota": "false", **config}
        pulumi.runtime.set_all_config({f"volley:{key}": value for key, value in given.items()})
        main()

    try:
        with pytest.raises(pulumi.RunError, match=message):
            asyncio.run(program())
    finally:
        pulumi.runtime.set_all_config({})
