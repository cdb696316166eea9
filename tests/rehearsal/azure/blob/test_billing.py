"""What Azure keeps and bills, as documented; and what the declared account keeps, over months."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rehearsal.azure.blob.billing import DAY_S, Account, BlobRequest, Retention, Rule
from tests.infra.declared_stack import declare_stack

BLOB = "results/blob"
VERSIONS = Rule(True, ("",), ("BlockBlob",), "created", 7)
BASE = Rule(False, ("environments/",), ("BlockBlob",), "modified", 90)


def at_once(retention: Retention) -> tuple[int, int]:
    """Returns what is billed after a blob of 10 bytes is replaced by 1, and that is deleted."""
    account = Account(retention)
    account.put(BLOB, 10)
    account.put(BLOB, 1)
    replaced = account.billed_bytes
    account.delete(BLOB)
    assert account.live_bytes == 0
    return replaced, account.billed_bytes


# What Azure does


@pytest.mark.parametrize(
    ("retention", "billed"),
    [
        (Retention(), (1, 0)),
        (Retention(versioning=True), (11, 11)),
        (Retention(soft_delete_days=7), (11, 11)),
        (Retention(versioning=True, soft_delete_days=7), (11, 11)),
    ],
)
def test_what_is_replaced_or_deleted_is_billed_where_it_is_kept(
    retention: Retention, billed: tuple[int, int]
) -> None:
    assert at_once(retention) == billed


def test_soft_delete_ends_and_versions_do_not() -> None:
    for retention, left in ((Retention(soft_delete_days=7), 1), (Retention(versioning=True), 11)):
        account = Account(retention)
        account.put(BLOB, 10)
        account.put(BLOB, 1)
        account.pass_time(7 * DAY_S)
        assert account.billed_bytes == left


def test_a_version_that_a_rule_deletes_is_billed_as_long_as_soft_delete_keeps_it() -> None:
    account = Account(Retention(versioning=True, soft_delete_days=7, rules=(VERSIONS,)))
    account.put(BLOB, 10)
    account.put(BLOB, 1)
    account.pass_time(14 * DAY_S)
    assert account.billed_bytes == 11
    account.pass_time(15 * DAY_S)
    assert account.billed_bytes == 1


def test_a_blob_that_a_rule_deletes_becomes_a_version_where_there_are_versions() -> None:
    account = Account(Retention(versioning=True, rules=(BASE,)))
    account.put("environments/lock", 10)
    account.pass_time(1000 * DAY_S)
    assert (account.live_bytes, account.billed_bytes) == (0, 10)


def test_a_rule_deletes_no_blob_that_has_versions() -> None:
    account = Account(Retention(versioning=True, rules=(BASE,)))
    account.put("environments/lock", 10)
    account.put("environments/lock", 10)
    account.pass_time(1000 * DAY_S)
    assert account.live_bytes == 10


def test_an_append_keeps_nothing_else() -> None:
    account = Account(Retention(versioning=True, soft_delete_days=7))
    account.apply(BlobRequest("PUT", f"/{BLOB}", blob_type="AppendBlob"))
    for _ in range(3):
        account.apply(BlobRequest("PUT", f"/{BLOB}?comp=appendblock", 10))
    assert (account.live_bytes, account.billed_bytes) == (30, 30)


def test_blocks_copies_and_containers_count_as_what_they_become() -> None:
    account = Account(Retention(container_days=7))
    account.apply(BlobRequest("PUT", "/results?restype=container"))
    for block in ("YQ==", "Yg=="):
        account.apply(BlobRequest("PUT", f"/{BLOB}?comp=block&blockid={block}", 10))
    listed = "<BlockList><Latest>YQ==</Latest><Latest>Yg==</Latest></BlockList>"
    account.apply(BlobRequest("PUT", f"/{BLOB}?comp=blocklist", 60, block_list=listed))
    copy = BlobRequest("PUT", "/results/a%20copy", copy_source=f"https://results.net/{BLOB}")
    account.apply(copy)
    assert account.names("results/a copy") == ["results/a copy"]
    assert account.live_bytes == 40
    account.apply(BlobRequest("DELETE", "/results?restype=container"))
    assert (account.live_bytes, account.billed_bytes) == (0, 40)
    account.pass_time(7 * DAY_S)
    assert account.billed_bytes == 0


# What the stack declares


def declared(**changed: object) -> Retention:
    stack = declare_stack()
    account = stack.one("StorageAccount")
    account = {**account, "networkRuleSet": {**account["networkRuleSet"], **changed}}
    return Retention.declared(
        account, stack.one("BlobServiceProperties"), stack.one("ManagementPolicy")
    )


NAMES = {
    "results/mlflow.db.gz": "the newest state of the database",
    "results/database/2026-06-10T12.db.gz": "a copy of it",
    "results/runs/a/checkpoints/checkpoint_9/weights": "the newest checkpoint",
    "results/runs/a/progress.csv": "a log",
    "environments/unused": "a Python environment",
    "environments/used": "a Python environment that a worker takes now and then",
}


def left_after(account: Account, days: int, uses: range = range(0)) -> set[str]:
    """Returns what is left, in any state; the environment is used on some days."""
    for day in uses:
        account.pass_time(day * DAY_S)
        account.read("environments/used")
    account.pass_time(days * DAY_S)
    return set(account.names())


def test_what_is_left_of_an_account_after_days_and_months() -> None:
    account = Account(declared())
    for name in NAMES:
        kind = "AppendBlob" if name.endswith(".csv") else "BlockBlob"
        account.put(name, 1, kind)
        account.put(name, 1, kind)
    account.put("results/runs/a/checkpoints/checkpoint_1/weights", 1)
    account.delete("results/runs/a/checkpoints/checkpoint_1/weights")
    everything = set(NAMES)
    copy, unused = "results/database/2026-06-10T12.db.gz", "environments/unused"
    assert left_after(account, 1) == everything
    assert account.billed_bytes == account.live_bytes
    assert left_after(account, 8) == everything
    assert left_after(account, 15) == everything - {copy}
    assert left_after(account, 91, uses=range(20, 91, 10)) == everything - {copy, unused}
    assert left_after(account, 1000) == {name for name in NAMES if "environments" not in name} - {
        copy
    }


def test_versions_that_somebody_turned_on_end_too() -> None:
    # Of an earlier version of volley, or of a policy of the subscription.
    account = Account(replace(declared(), versioning=True))
    account.put(BLOB, 10)
    account.put(BLOB, 1)
    account.put("environments/unused", 100)
    account.pass_time(8 * DAY_S)
    assert account.billed_bytes == 101
    account.pass_time(92 * DAY_S)
    assert account.billed_bytes == 1


def test_rules_that_the_firewall_blocks_delete_nothing() -> None:
    account = Account(declared(bypass="None"))
    account.put("environments/unused", 100)
    account.pass_time(1000 * DAY_S)
    assert account.billed_bytes == 100
