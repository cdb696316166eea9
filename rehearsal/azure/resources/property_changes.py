"""Changes of a resource as azure-native sees them, in a preview and in a refresh.

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
    """Returns the changed inputs, each with the innermost changed paths in it.

    replace_on_changes contains such paths: "osProfile.customData".
    """
    keys = [key for key in sorted({*old, *new}) if not same(old.get(key), new.get(key))]
    return {key: list(_changed_paths(key, old.get(key), new.get(key))) for key in keys}


def _changed_paths(path: str, old: Any, new: Any) -> Iterator[str]:
    if not (isinstance(old, dict) and isinstance(new, dict)):
        yield path
        return
    for inner in chain(*changes(old, new).values()):
        yield f"{path}.{inner}"


def same(old: Any, new: Any) -> bool:
    """Whether two values are equal, ignoring the case of the start of an id.

    It follows stringsEqualCaseInsensitiveAzureIds in diff.go.
    """
    if isinstance(old, str) and isinstance(new, str):
        return _folded(old) == _folded(new)
    if isinstance(old, dict) and isinstance(new, dict):
        return old.keys() == new.keys() and all(same(old[key], new[key]) for key in old)
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(same, old, new))
    return bool(old == new)


def inputs_after_read(inputs: Properties, before: Properties, after: Properties) -> Properties:
    """Returns the inputs that a refresh puts into the state: Read in provider.go.

    They are the old inputs with the differences between Azure's earlier answer, which is in the
    state, and its current one. What Azure returned from the beginning is not an input.
    """
    changed: Properties = _changed(inputs, before, after)
    return changed


def _changed(inputs: Any, before: Any, after: Any) -> Any:
    if isinstance(before, dict) and isinstance(after, dict) and isinstance(inputs, dict):
        keys = [*inputs, *(key for key in after if key not in inputs)]
        values = {
            key: _changed(inputs.get(key, ABSENT), before.get(key, ABSENT), after.get(key, ABSENT))
            for key in keys
        }
        return {key: value for key, value in values.items() if value is not ABSENT}
    lists = isinstance(before, list) and isinstance(after, list) and isinstance(inputs, list)
    if lists and len(inputs) == len(before) == len(after):
        return [_changed(*items) for items in zip(inputs, before, after, strict=True)]
    return inputs if before == after else after


def _folded(text: str) -> str:
    return ID_PREFIX.sub(lambda prefix: prefix[0].lower(), text)
