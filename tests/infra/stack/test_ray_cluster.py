"""The cluster as a component: in programs of others, and in stacks made before there was one."""

from __future__ import annotations

import json
import re

import pytest
import yaml

from tests.infra.declared_stack import SSH_KEY
from tests.infra.up import engine_stack
from tests.infra.up.engine_stack import Stack, needs_pulumi
from tests.project import ROOT

stack, declared = engine_stack.stack, engine_stack.declared
pytestmark = [pytest.mark.slow, needs_pulumi]
COMPONENT = "volley:infra:RayCluster"


def test_a_stack_made_without_the_component_changes_nothing(declared: Stack) -> None:
    state = json.loads(declared.pulumi("stack", "export").stdout)
    resources = state["deployment"]["resources"]
    (cluster,) = [resource for resource in resources if resource["type"] == COMPONENT]
    resources.remove(cluster)
    older = json.dumps(state).replace(cluster["urn"], cluster["parent"])
    file = declared.folder / "older.json"
    file.write_text(older.replace(f"{COMPONENT}$", ""))
    assert declared.pulumi("stack", "import", "--file", str(file)).returncode == 0
    assert declared.steps() == {"create": {"volley-dev"}}
    done = declared.up()
    assert done.returncode == 0, done.stdout + done.stderr
    declared.expect_no_changes()


def test_another_program_declares_two_clusters_as_the_documentation_shows(stack: Stack) -> None:
    text = (ROOT / "docs/azure.md").read_text().partition("## In a program of your own")[2]
    example = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert example is not None
    program = stack.folder / "theirs"
    program.mkdir()
    two = "".join(
        example[1].replace('"lab"', f'"{name}"').replace("export(name", f'export("{name}" + name')
        for name in ("one", "two")
    )
    (program / "__main__.py").write_text(two.replace('"ssh-ed25519 ..."', repr(SSH_KEY)))
    project = yaml.safe_load((stack.folder / "Pulumi.yaml").read_text())
    (stack.folder / "Pulumi.yaml").write_text(yaml.safe_dump({**project, "main": "theirs"}))
    done = stack.up(PYTHONPATH=str(stack.folder))
    assert done.returncode == 0, done.stdout + done.stderr
    assert stack.kinds().count("VirtualMachine") == 2
    outputs = json.loads(stack.pulumi("stack", "output", "--json").stdout)
    assert outputs["onessh"] != outputs["twossh"]
