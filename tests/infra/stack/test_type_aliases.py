"""No resource carries azure-native's aliases, and none needs them."""

from __future__ import annotations

import re

from tests.infra.declared_stack import Declared


def test_resources_are_declared_without_aliases(any_stack: Declared) -> None:
    assert [
        resource.name for resource in any_stack.resources if list(resource.options.aliases)
    ] == []


def test_no_resource_is_declared_at_an_explicit_version_that_would_need_one(
    any_stack: Declared,
) -> None:
    tokens = {resource.token for resource in any_stack.resources}
    assert [token for token in tokens if not re.fullmatch(r"azure-native:\w+:\w+", token)] == []
