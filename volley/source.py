"""What `status`, `logs` and `pull` read: the head, or while it is off the results account."""

import argparse
import sys
from dataclasses import dataclass

from payload.errors import UserError
from volley.errors import as_typed, refused
from volley.head import Head
from volley.results_account import Account
from volley.saved_results import SavedResults
from volley.sleeping_head import AsleepError
from volley.stack import NoClusterError, Stack


@dataclass(frozen=True)
class Off:
    """A cluster without a running head, or whose head was not asked."""

    why: str
    """"The cluster is asleep"; "" if the results account was asked for."""
    next_command: str
    asleep: bool
    account: Account | None
    """None if it is not known."""

    def results(self) -> SavedResults:
        """Returns what the results account has.

        Raises:
            UserError: The account is not known, or azure-storage-blob is not installed.
        """
        if self.account is None and self.why and not self.asleep:
            hint = f"{self.next_command}, or for earlier results --results-account NAME"
            raise refused(self.why, hint)
        if self.account is None:
            raise refused(
                "its results account is not known: add --results-account NAME",
                "az storage account list --query \"[?tags.project=='volley'].name\" -o tsv",
            )
        return SavedResults(self.account)

    def say(self) -> None:
        """Says where the answer comes from, beside the answer."""
        assert self.account is not None
        begin = f"{self.why}: this" if self.why else "This"
        line = f"{begin} is from the results account {self.account.name}."
        after = f" Next: {self.next_command}" if self.why else ""
        print(as_typed(line + after), file=sys.stderr, flush=True)


def source(options: argparse.Namespace) -> Head | Off:
    """Returns the head, or if it is off or the options say so, the results account.

    Raises:
        UserError: No stack, or the head cannot be reached although it is not off.
    """
    stack = Stack(options.stack)
    if options.from_results or options.results_account:
        return Off("", "", False, account_of(stack, options.results_account))
    try:
        return Head(stack)
    except (AsleepError, NoClusterError) as error:
        why, _, next_command = str(error).partition(". Next: ")
        account = remembered_account(stack)
        return Off(why, next_command, isinstance(error, AsleepError), account)


def account_of(stack: Stack, given: str | None) -> Account | None:
    """Returns the account of an option, or the stack's.

    Raises:
        UserError: The option cannot be used, or pulumi cannot be asked.
    """
    if given:
        return Account.of(given)
    account = remembered_account(stack)
    if account is None:
        try:
            stack.outputs()
        except NoClusterError:
            return None
        account = remembered_account(stack)
    return account


def remembered_account(stack: Stack) -> Account | None:
    """Returns the account in the stack's outputs as they were seen last, also after `down`."""
    outputs = stack.remembered()
    for key in ("resultsAccountId", "resultsUrl"):
        if outputs is not None and (text := outputs.values.get(key)):
            return Account.of(str(text))
    return None


def unread(error: UserError, off: Off) -> UserError:
    """Returns the error of results that cannot be read, with the state of the cluster before it."""
    if not off.why:
        return UserError(str(error))
    return UserError(f"{off.why}; from the results account: {error}")
