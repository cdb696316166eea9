"""Every stack's declared properties agree with Azure's published schemas."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.infra.declared_stack import Declared
from tests.project import ROOT

ARM_CHECK = ROOT.parent / "shared" / "arm_check.py"
AS_ARM_SAYS = {"enableHttpsTrafficOnly": "supportsHttpsTrafficOnly"}
"""Inputs with another name in azure-native, besides those that the checker knows."""


@pytest.mark.slow
@pytest.mark.skipif(not ARM_CHECK.exists(), reason=f"Azure's schemas are not there: {ARM_CHECK}")
def test_every_property_is_one_that_azure_knows(any_stack: Declared, tmp_path: Path) -> None:
    declared = tmp_path / "declared.json"
    declared.write_text(json.dumps(as_arm(any_stack)))
    checked = subprocess.run(
        [sys.executable, str(ARM_CHECK), str(declared)], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout
    assert "not covered" not in checked.stderr


def as_arm(stack: Declared) -> list[dict[str, Any]]:
    """Returns a stack's resources in the checker's format."""
    return [
        {
            "name": resource.name,
            "type": resource.token,
            "inputs": {AS_ARM_SAYS.get(key, key): x for key, x in resource.inputs.items()},
        }
        for resource in stack.resources
    ]
