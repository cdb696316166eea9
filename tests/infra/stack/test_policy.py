"""checkov's findings: each accepted one has its reason where the property is declared."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.infra.declared_stack import Declared
from tests.infra.stack.test_schemas import ARM_CHECK, as_arm
from tests.project import ROOT

CHECKOV = shutil.which("checkov") or ""
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CHECKOV, reason="checkov is not on the PATH"),
    pytest.mark.skipif(not ARM_CHECK.exists(), reason=f"{ARM_CHECK} is missing"),
]

ACCEPTED = {
    "CKV_AZURE_206": "infra/stack/results_account.py",
    "CKV_AZURE_50": "infra/stack/vm_arguments.py",
    "CKV_AZURE_95": "infra/stack/vm_arguments.py",
}
"""Accepted findings, each with the file that gives the reason."""
MAX_TEXT = 200


def test_checkov_finds_nothing_without_a_reason(any_stack: Declared, tmp_path: Path) -> None:
    declared, template = tmp_path / "declared.json", tmp_path / "template.json"
    declared.write_text(json.dumps(_shortened(as_arm(any_stack))))
    check = [sys.executable, str(ARM_CHECK), str(declared), "--template", str(template)]
    subprocess.run(check, check=True)
    command = [
        CHECKOV,
        "--file",
        str(template),
        "--framework",
        "arm",
        "--output",
        "json",
        "--quiet",
        "--skip-download",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    failed = json.loads(done.stdout)["results"]["failed_checks"]
    assert {one["check_id"] for one in failed} <= set(ACCEPTED)


def _shortened(value: Any) -> Any:
    """Shortens scripts and customData, which checkov would scan for minutes."""
    if isinstance(value, str):
        return value[:MAX_TEXT]
    if isinstance(value, dict):
        return {key: _shortened(part) for key, part in value.items()}
    return [_shortened(part) for part in value] if isinstance(value, list) else value


@pytest.mark.parametrize(("finding", "file"), ACCEPTED.items())
def test_each_accepted_finding_has_its_reason(finding: str, file: str) -> None:
    assert finding in (ROOT / file).read_text()
