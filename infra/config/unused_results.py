"""Names results accounts whose cluster is gone: Azure bills them until somebody deletes them.

https://learn.microsoft.com/rest/api/storagerp/storage-accounts/list
https://learn.microsoft.com/azure/storage/blobs/monitor-blob-storage-reference (UsedCapacity)
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pulumi

from infra.config.prices import prices
from infra.config.quota import GROUPS, listed

ACCOUNTS = "/providers/Microsoft.Storage/storageAccounts?api-version=2023-05-01"
CAPACITY = (
    "/providers/Microsoft.Insights/metrics?api-version=2023-10-01&metricnames=UsedCapacity"
    "&aggregation=Average&interval=PT1H&timespan="
)
GROUP = re.compile("/resourceGroups/([^/]+)/", re.IGNORECASE)
GB = 2**30


def tell_unused_results(project: str, own: str) -> None:
    """Warns of each results account of the project that no cluster uses, with its size and price.

    Args:
        own: The account of resultsAccountId.
    """
    try:
        unused = list(unused_accounts(listed(ACCOUNTS), listed(GROUPS), project, own))
    except Exception as error:  # The list needs rights that `up` itself does not need.
        pulumi.log.info(f"Results accounts without a cluster were not looked for: {error}")
        return
    if unused:
        lines = "\n".join(f"  {account['id']}: {_size(account['id'])}" for account in unused)
        pulumi.log.warn(
            f"No cluster uses these results accounts, and Azure bills them:\n{lines}\n"
            "To continue with one: pulumi config set resultsAccountId ID. "
            "To delete one with its results: az group delete --name GROUP"
        )


def unused_accounts(
    accounts: Iterable[Mapping[str, Any]],
    groups: Iterable[Mapping[str, Any]],
    project: str,
    own: str,
) -> Iterator[Mapping[str, Any]]:
    """Yields the project's accounts that no existing cluster's network reaches.

    The network of a cluster in existing subnets (headSubnetId) does not tell whose it is: such an
    account counts as used while a cluster of its stack exists.
    """
    ours = [account for account in accounts if _tag(account, "project") == project]
    homes = {_group(account["id"]) for account in ours}
    clusters = {
        name: _tag(group, "stack")
        for group in groups
        if _tag(group, "project") == project and (name := group["name"].lower()) not in homes
    }
    for account in ours:
        reaching = {_group(resource) for resource in _reaching(account)}
        prefix, _, _ = _group(account["id"]).rpartition("-results")
        own_network = any(re.fullmatch(f"{prefix}[0-9a-f]{{8}}", group) for group in reaching)
        used = reaching & clusters.keys() or account["id"].lower() == own.lower()
        if not used and (own_network or _tag(account, "stack") not in clusters.values()):
            yield account


def _reaching(account: Mapping[str, Any]) -> Iterator[str]:
    """Yields the ids of the subnets and private endpoints that reach an account."""
    properties = account["properties"]
    for rule in properties.get("networkAcls", {}).get("virtualNetworkRules", []):
        yield rule["id"]
    for connection in properties.get("privateEndpointConnections", []):
        yield connection["properties"].get("privateEndpoint", {}).get("id", "")


def _size(account_id: str) -> str:
    """Returns "12.3 GB, about 0.26 dollars a month"."""
    now = datetime.now(UTC).replace(microsecond=0, tzinfo=None)
    span = f"{(now - timedelta(days=1)).isoformat()}Z/{now.isoformat()}Z"
    below_subscription = "/" + "/".join(account_id.split("/")[3:])
    try:
        (metric,) = listed(f"{below_subscription}{CAPACITY}{span}")
        points = [point for series in metric["timeseries"] for point in series["data"]]
        gb = [point["average"] for point in points if "average" in point][-1] / GB
    except Exception as error:
        return f"size unknown ({error})"
    return f"{gb:.1f} GB, about {gb * prices().blob_gb_month:.2f} dollars a month"


def _group(resource_id: str) -> str:
    found = GROUP.search(resource_id)
    return found[1].lower() if found else ""


def _tag(resource: Mapping[str, Any], key: str) -> str:
    value: str = (resource.get("tags") or {}).get(key, "")
    return value
