"""`volley registry-login` over a real sshd and volley-head."""

from __future__ import annotations

import json

import pytest

from tests.volley.conftest import Laptop
from tests.volley.head import LocalHead

pytestmark = pytest.mark.slow


def test_a_password_from_stdin_reaches_the_head_and_is_removed(
    connected: Laptop, head: LocalHead
) -> None:
    said = connected.volley("registry-login", "ghcr.io", "--username", "me", text="a b:c\n")
    assert said == "The cluster's logins: ghcr.io\n"
    kept = json.loads((head.root / "var/lib/volley/.registry-logins.json").read_text())
    assert kept == {"auths": {"ghcr.io": {"auth": "bWU6YSBiOmM="}}}
    assert connected.volley("registry-login", "ghcr.io", "--remove") == (
        "The cluster's logins: none\n"
    )
    refused = connected.volley("registry-login", "ghcr.io", "--remove", code=2)
    assert refused.startswith("ghcr.io: no login")


def test_what_cannot_be_a_login_is_refused_before_the_head_is_asked(
    connected: Laptop, head: LocalHead
) -> None:
    login = ("registry-login", "ghcr.io/team")
    assert connected.volley(*login, code=2).startswith("ghcr.io/team: must be a registry's address")
    assert connected.volley("registry-login", "ghcr.io", code=2) == (
        "ghcr.io: give --username NAME, or --remove"
    )
    empty = connected.volley("registry-login", "ghcr.io", "--username", "me", text="", code=2)
    assert empty == "ghcr.io: the password is empty"
    assert head.connections() == 0
