"""`volley registry-login`: the cluster's login to a private container registry."""

import argparse
import getpass
import re
import sys
from base64 import b64encode

from payload.errors import UserError
from volley.head import Head
from volley.stack import Stack
from volley.tables import show

REGISTRY = re.compile(r"[A-Za-z0-9.-]+(:\d+)?")


def registry_login(options: argparse.Namespace) -> int:
    """Sends a login to the head, which keeps it on its disk; or removes it there.

    Raises:
        UserError: The name of the registry or the login cannot be used.
    """
    registry = options.registry
    if not REGISTRY.fullmatch(registry):
        raise UserError(
            f"{registry}: must be a registry's address without a path, for example ghcr.io"
        )
    login = b"" if options.remove else _login(registry, options.username)
    answer = Head(Stack(options.stack)).ask("registry-login", registry, stdin=login)
    logins = ", ".join(answer["registries"]) or "none"
    show(options.as_json, answer, f"The cluster's logins: {logins}")
    return 0


def _login(registry: str, username: str | None) -> bytes:
    """Returns user and password as docker's config.json has them; asks for the password."""
    if username is None:
        raise UserError(f"{registry}: give --username NAME, or --remove")
    if sys.stdin.isatty():
        password = getpass.getpass(f"Password or token of {username} at {registry}: ")
    else:
        password = sys.stdin.readline().rstrip("\n")
    if not password:
        raise UserError(f"{registry}: the password is empty")
    return b64encode(f"{username}:{password}".encode())
