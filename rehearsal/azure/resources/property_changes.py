"""What azure-native takes for a change of a resource, in a preview and in a refresh.

https://github.com/pulumi/pulumi-azure-native, diff.go and provider.go in provider/pkg/provider
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from typing import Any

from rehearsal.azure.resources.resource_kinds import Properties

ID_PREFIX = re.compile(r"^/subscriptions/[^/]+/resourceGroups/[^/]+/providers/", re.IGNORECASE)
ABSENT: Any = object()


def changes(old: Properties, new: Properties) -> dict[str, list[str]]:
    """Returns the inputs that changed, each with the innermost paths that changed in it.

    replace_on_changes names such paths: "osProfile.customData".
    """
    keys = [key for key in sorted({*old, *new}) if not same(old.get(key), new.get(key))]
    return {key: list(_changed_paths(key, old.get(key), new.get(key))) for key in keys}


def _changed_paths(path: str, old: Any, new: Any) -> Iterator[str]:
    if not (isinstance(old, dict) and isinstance(new, dict)):
        yield path
        return
    for inner in chain(*changes(old, new).values()):
        yield f"{path}.{inner}"


def same(one: Any, other: Any) -> bool:
    """Whether two values are the same: the start of an id has no case.

    stringsEqualCaseInsensitiveAzureIds in diff.go.
    """
    if isinstance(one, str) and isinstance(other, str):
        return _folded(one) == _folded(other)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def inputs_after_read(inputs: Properties, before: Properties, after: Properties) -> Properties:
    """Returns the inputs that a refresh puts into the state: Read in provider.go.

    The old inputs, changed by what differs between two answers. What Azure answered from the
    beginning is not an input.

    Args:
        before: The resource's outputs in the state, which are an earlier answer.
        after: Azure's answer now.
    """
    found: Properties = _changed(inputs, before, after)
    return found


def _changed(inputs: Any, before: Any, after: Any) -> Any:
    if isinstance(before, dict) and isinstance(after, dict) and isinstance(inputs, dict):
        keys = [*inputs, *(key for key in after if key not in inputs)]
        found = {
            key: _changed(inputs.get(key, ABSENT), before.get(key, ABSENT), after.get(key, ABSENT))
            for key in keys
        }
        return {key: value for key, value in found.items() if value is not ABSENT}
    lists = isinstance(before, list) and isinstance(after, list) and isinstance(inputs, list)
    if lists and len(inputs) == len(before) == len(after):
        return [_changed(*items) for items in zip(inputs, before, after, strict=True)]
    return inputs if before == after else after


def _folded(text: str) -> str:
    return ID_PREFIX.sub(lambda prefix: prefix[0].lower(), text)
