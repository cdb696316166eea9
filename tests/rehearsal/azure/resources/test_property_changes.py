"""The differences that azure-native treats as changes."""

from __future__ import annotations

from typing import Any

import pytest

from rehearsal.azure.resources.property_changes import changes, inputs_after_read

ID = "/subscriptions/s/resourceGroups/{}/providers/Microsoft.Network/virtualNetworks/v"


def test_a_change_is_told_by_its_innermost_paths() -> None:
    old = {"osProfile": {"customData": "a", "ssh": {"keys": ["k"]}}, "zones": ["1"], "tags": {}}
    new = {"osProfile": {"customData": "b", "ssh": {"keys": ["k", "l"]}}, "tags": {}}
    assert changes(old, new) == {
        "osProfile": ["osProfile.customData", "osProfile.ssh.keys"],
        "zones": ["zones"],
    }


def test_the_group_in_an_id_has_no_case() -> None:
    assert not changes({"subnet": {"id": ID.format("g")}}, {"subnet": {"id": ID.format("G")}})


def test_the_name_in_an_id_has_case() -> None:
    assert changes({"id": ID.format("g")}, {"id": ID.format("g").replace("/v", "/V")})


INPUTS = {"a": {"declared": 1}, "secret": "s", "list": ["x", {"y": 1}]}
"""Azure never returns the secret and always returns `added`."""
ANSWER = {"a": {"declared": 1, "added": 2}, "list": ["x", {"y": 1, "added": 2}], "added": 2}


@pytest.mark.parametrize(
    ("now", "inputs"),
    [
        ({}, {}),
        ({"a": {"declared": 3, "added": 2}}, {"a": {"declared": 3}}),
        ({"a": {"declared": 1, "added": 4}}, {"a": {"declared": 1, "added": 4}}),
        ({"late": 5}, {"late": 5}),
        ({"list": ["x", {"y": 6, "added": 2}]}, {"list": ["x", {"y": 6}]}),
        ({"list": ["x"]}, {"list": ["x"]}),
    ],
    ids=["nothing", "declared", "added before", "added later", "in a list", "a list's length"],
)
def test_a_refresh_takes_what_has_changed_between_two_answers(
    now: dict[str, Any], inputs: dict[str, Any]
) -> None:
    assert inputs_after_read(INPUTS, ANSWER, {**ANSWER, **now}) == {**INPUTS, **inputs}


def test_a_refresh_forgets_what_azure_no_longer_answers() -> None:
    answer = {key: value for key, value in ANSWER.items() if key != "list"}
    assert inputs_after_read(INPUTS, ANSWER, answer) == {"a": {"declared": 1}, "secret": "s"}
