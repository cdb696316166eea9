"""Converts Pulumi's property values to plain Python values and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pulumi.provider.experimental.property_value import PropertyValue

from rehearsal.azure.resources.resource_kinds import Properties

PropertyValues = Mapping[str, PropertyValue]


def plain(values: PropertyValues) -> Properties:
    """Returns the values without the engine's own keys and without secrecy."""
    return {key: plain_value(value) for key, value in without(values).items()}


def wrapped(values: Properties) -> dict[str, PropertyValue]:
    return {key: _wrapped(value) for key, value in values.items()}


def without(values: PropertyValues, *keys: str) -> dict[str, PropertyValue]:
    """Returns all but these keys and the engine's own, such as "__createBeforeDelete"."""
    return {k: v for k, v in values.items() if k not in keys and not k.startswith("__")}


def plain_value(value: Any) -> Any:
    """Returns a plain value; whole numbers, which travel as floats, become integers."""
    value = value.value if isinstance(value, PropertyValue) else value
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, Mapping):
        return {key: plain_value(item) for key, item in value.items()}
    return [plain_value(item) for item in value] if isinstance(value, list | tuple) else value


def _wrapped(value: Any) -> PropertyValue:
    if isinstance(value, Mapping):
        return PropertyValue({key: _wrapped(item) for key, item in value.items()})
    if isinstance(value, list | tuple):
        return PropertyValue([_wrapped(item) for item in value])
    return PropertyValue(float(value) if type(value) is int else value)
