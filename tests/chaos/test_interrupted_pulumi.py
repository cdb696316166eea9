"""`up` and `destroy` are killed with SIGKILL before and after each of their operations."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.infra.up import engine_stack
from tests.infra.up.engine_stack import Stack, needs_pulumi
from tests.infra.up.test_interrupted import EVERYTHING, LOGIN, RESULTS

stack, declared = engine_stack.stack, engine_stack.declared
pytestmark = [pytest.mark.chaos, needs_pulumi]

DELETIONS = 9
"""The token's container, seven roles and the group; Azure deletes the group's contents."""


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("operation", range(1, EVERYTHING.total() + 1))
def test_make_up_after_a_killed_up_makes_everything_once_and_replaces_nothing(
    stack: Stack, operation: int, when: str
) -> None:
    assert stack.up(AZURE_KILL=f"{when} {operation}").returncode != 0
    done = stack.make_target("up", **LOGIN)
    assert done.returncode == 0, done.stdout + done.stderr
    assert Counter(stack.kinds()) == EVERYTHING
    assert "replaced" not in done.stdout


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("operation", range(1, DELETIONS + 1))
def test_make_down_after_a_killed_destroy_leaves_the_results_alone(
    declared: Stack, operation: int, when: str
) -> None:
    killed = declared.pulumi("destroy", "--yes", "--skip-preview", AZURE_KILL=f"{when} {operation}")
    assert killed.returncode != 0
    done = declared.make_target("destroy", **LOGIN)
    assert done.returncode == 0, done.stdout + done.stderr
    assert Counter(declared.kinds()) == RESULTS
