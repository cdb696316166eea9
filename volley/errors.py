"""Errors with the next command to type."""

from __future__ import annotations

from payload.errors import UserError


class LostError(UserError):
    """The connection to the head was lost in the middle of a command."""


def refused(what: str, next_command: str) -> UserError:
    """Returns an error that says what to type next."""
    return UserError(f"{what}. Next: {next_command}")
