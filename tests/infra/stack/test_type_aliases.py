"""No resource carries azure-native's aliases, and none needs them."""

from __future__ import annotations

import re

from tests.infra.declared_stack import Declared


def test_resources_are_declared_without_their_types_aliases(any_stack: Declared) -> None:
    aliased = [resource for resource in any_stack.resources if list(resource.options.aliases)]
    # It stands in the component, and stood in the stack.
    (group,) = aliased
    assert group.type == "ResourceGroup"
    (alias,) = group.options.aliases
    assert alias.spec.noParent
    assert not alias.spec.type


def test_no_resource_is_declared_at_an_explicit_version_that_would_need_one(
    any_stack: Declared,
) -> None:
    tokens = {resource.token for resource in any_stack.resources}
    assert [token for token in tokens if not re.fullmatch(r"azure-native:\w+:\w+", token)] == []
