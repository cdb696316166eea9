"""What a storage account keeps and bills, by its declared retention: Azurite keeps nothing.

Callers pass the time, so that a test covers months in a moment. Sources:

https://learn.microsoft.com/azure/storage/blobs/versioning-overview
https://learn.microsoft.com/azure/storage/blobs/soft-delete-blob-overview
https://learn.microsoft.com/azure/storage/blobs/lifecycle-management-policy-structure
https://learn.microsoft.com/azure/storage/blobs/lifecycle-management-policy-configure
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree

DAY_S = 86400.0
Age = Literal["created", "modified", "accessed"]
CONDITIONS: Mapping[str, Age] = {
    "daysAfterCreationGreaterThan": "created",
    "daysAfterModificationGreaterThan": "modified",
    "daysAfterLastAccessTimeGreaterThan": "accessed",
}


@dataclass(frozen=True)
class BlobRequest:
    """A request that has changed a blob."""

    method: str
    url: str
    length: int = 0
    blob_type: str = ""
    copy_source: str = ""
    block_list: str = ""
    """The blocks of which a blob is put together, as XML."""


@dataclass(frozen=True)
class Rule:
    """A lifecycle rule that deletes blobs, or earlier versions of them."""

    versions: bool
    prefixes: tuple[str, ...]
    blob_types: tuple[str, ...]
    age: Age
    days: float


@dataclass(frozen=True)
class Retention:
    """What an account keeps after it was replaced or deleted."""

    versioning: bool = False
    soft_delete_days: float = 0.0
    container_days: float = 0.0
    rules: tuple[Rule, ...] = ()

    @classmethod
    def declared(
        cls, account: Mapping[str, Any], service: Mapping[str, Any], policy: Mapping[str, Any]
    ) -> Retention:
        """Reads the inputs of StorageAccount, BlobServiceProperties and ManagementPolicy.

        A firewall that does not let in Azure's trusted services may block the lifecycle rules:
        here it does.
        """
        firewall = account["networkRuleSet"]
        blocked = firewall["defaultAction"] == "Deny" and "AzureServices" not in firewall["bypass"]
        tracked = service.get("lastAccessTimeTrackingPolicy", {}).get("enable", False)
        rules = [] if blocked else [r for rule in policy["policy"]["rules"] for r in _rules(rule)]
        if not tracked and any(rule.age == "accessed" for rule in rules):
            raise ValueError("a rule by the time of the last access, which is not tracked")
        return cls(
            versioning=service["isVersioningEnabled"],
            soft_delete_days=_days(service.get("deleteRetentionPolicy", {})),
            container_days=_days(service.get("containerDeleteRetentionPolicy", {})),
            rules=tuple(rules),
        )


@dataclass
class Kept:
    """A blob, or what is left of one."""

    name: str
    """With its container."""
    size: int
    blob_type: str
    created: float
    modified: float
    accessed: float
    state: Literal["current", "version", "deleted"] = "current"
    gone_at: float = float("inf")
    """When a deleted one is deleted for good."""


@dataclass
class Account:
    """A storage account; times are in seconds, and must not decrease."""

    retention: Retention
    now: float = 0.0
    kept: list[Kept] = field(default_factory=list)
    _blocks: dict[tuple[str, str], int] = field(default_factory=dict)
    """Sizes of the blocks that belong to no blob yet, by blob and id."""

    @property
    def live_bytes(self) -> int:
        """Returns the size of what anybody can read."""
        return sum(blob.size for blob in self.kept if blob.state == "current")

    @property
    def billed_bytes(self) -> int:
        """Returns the size of all that Azure bills.

        Nothing here shares blocks with an earlier version: each upload is billed in full.
        """
        return sum(blob.size for blob in self.kept)

    def names(self, prefix: str = "") -> list[str]:
        """Returns what is left of the blobs with a prefix, in any state."""
        return [blob.name for blob in self.kept if blob.name.startswith(prefix)]

    def pass_time(self, until: float) -> None:
        """Deletes what is due; Azure runs the rules once a day."""
        while (self.now // DAY_S + 1) * DAY_S <= until:
            self.now = (self.now // DAY_S + 1) * DAY_S
            self._expire()
            for rule in self.retention.rules:
                self._run(rule)
        self.now = max(self.now, until)
        self._expire()

    def apply(self, request: BlobRequest) -> None:
        """Carries out a request that Azurite has answered with success."""
        url = urlsplit(request.url)
        name, query = unquote(url.path).removeprefix("/"), parse_qs(url.query)
        what = "".join(query.get("comp", query.get("restype", [""])))
        if request.method == "DELETE":
            self._delete_container(name) if what == "container" else self.delete(name)
        elif what == "block":
            self._blocks[name, query["blockid"][0]] = request.length
        elif what == "blocklist":
            ids = [block.text or "" for block in ElementTree.fromstring(request.block_list)]
            self.put(name, sum(self._blocks.pop((name, block), 0) for block in ids))
        elif what == "appendblock":
            blob = self._current(name)
            blob.size, blob.modified = blob.size + request.length, self.now
        elif request.copy_source:
            source = unquote(urlsplit(request.copy_source).path).removeprefix("/")
            self.put(name, self._current(source).size)
        elif not what:
            self.put(name, request.length, request.blob_type)

    def put(self, name: str, size: int, blob_type: str = "BlockBlob") -> None:
        """Creates or replaces a blob."""
        for blob in self._of(name, "current"):
            self._keep(blob)
        self.kept.append(Kept(name, size, blob_type, self.now, self.now, self.now))

    def read(self, name: str) -> None:
        self._current(name).accessed = self.now

    def delete(self, name: str) -> None:
        self._keep(self._current(name))

    def _keep(self, blob: Kept) -> None:
        """Keeps a current blob that is replaced or deleted, as far as the account does."""
        if self.retention.versioning:
            blob.state = "version"
        else:
            self._delete_softly(blob, self.retention.soft_delete_days)

    def _delete_softly(self, blob: Kept, days: float) -> None:
        blob.state, blob.gone_at = "deleted", self.now + days * DAY_S
        self._expire()

    def _delete_container(self, container: str) -> None:
        for blob in [blob for blob in self.kept if blob.name.startswith(f"{container}/")]:
            self._delete_softly(blob, self.retention.container_days)

    def _expire(self) -> None:
        self.kept = [blob for blob in self.kept if blob.gone_at > self.now]

    def _run(self, rule: Rule) -> None:
        state: Literal["current", "version"] = "version" if rule.versions else "current"
        for blob in [blob for blob in self.kept if blob.state == state]:
            old = self.now - getattr(blob, rule.age) > rule.days * DAY_S
            if not old or blob.blob_type not in rule.blob_types:
                continue
            if not blob.name.startswith(rule.prefixes):
                continue
            if rule.versions:
                self._delete_softly(blob, self.retention.soft_delete_days)
            elif not self._of(blob.name, "version"):
                # Azure deletes no blob that has versions.
                self._keep(blob)

    def _of(self, name: str, state: str) -> list[Kept]:
        return [blob for blob in self.kept if blob.name == name and blob.state == state]

    def _current(self, name: str) -> Kept:
        (blob,) = self._of(name, "current")
        return blob


def _days(policy: Mapping[str, Any]) -> float:
    return float(policy["days"]) if policy.get("enabled") else 0.0


def _rules(declared: Mapping[str, Any]) -> Iterable[Rule]:
    definition = declared["definition"]
    filters = definition["filters"]
    # Without a prefix a rule is for all blobs.
    prefixes = tuple(filters.get("prefixMatch", [""]))
    types = tuple(f"{blob_type[0].upper()}{blob_type[1:]}" for blob_type in filters["blobTypes"])
    for of, actions in definition["actions"].items():
        if of not in ("baseBlob", "version") or set(actions) != {"delete"}:
            raise ValueError(f"the stand-in knows no rule {of}: {', '.join(actions)}")
        ((condition, days),) = actions["delete"].items()
        yield Rule(of == "version", prefixes, types, CONDITIONS[condition], float(days))
