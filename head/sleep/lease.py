"""The workers' lease: Azure deletes them unless a head that lives renews it.

Azure's autoscale keeps a scale set within the limits of the profile that is valid now. The head
adds one that ends in some hours and allows any number of workers, so that Ray's autoscaler decides.
After it, the declared one of infra/stack/autoscale.py is valid, which allows none.
https://learn.microsoft.com/azure/azure-monitor/autoscale/autoscale-understanding-settings
"""

import time
from datetime import datetime, timedelta
from typing import Any

from ..autoscaler.scale_set import ScaleSet
from ..cluster_settings import ClusterSettings
from ..paths import LEASE
from ..resource_manager import ResourceManagerError, for_machine

VERSION = {"api-version": "2022-10-01"}
LEASE_HOURS = 3.0
RENEW_S = 1800.0
MOST = "1000"
"""As many as a scale set can have."""


def renew(settings: ClusterSettings) -> None:
    """Renews the lease if that is due; a failure is tried again by the next run."""
    now = time.monotonic()
    if not settings.lease or now - _renewed() < RENEW_S:
        return
    azure = for_machine(settings.endpoint)
    try:
        # Its answer has Azure's time: the head's clock may be wrong.
        ScaleSet(azure, settings.scale_set).capacity()
        azure.write("PATCH", settings.lease, VERSION, _lease(settings.scale_set, azure.date))
    except ResourceManagerError as error:
        print(f"the workers' lease is not renewed: {error}", flush=True)
        return
    LEASE.parent.mkdir(parents=True, exist_ok=True)
    LEASE.write_text(str(now))


def _renewed() -> float:
    try:
        return float(LEASE.read_text())
    except (OSError, ValueError):
        return float("-inf")


def _lease(scale_set: str, now: datetime) -> dict[str, Any]:
    start, end = now - timedelta(hours=1), now + timedelta(hours=LEASE_HOURS)
    profiles = [
        _profile("without a head", "0"),
        {
            **_profile("with a head", MOST),
            "fixedDate": {"timeZone": "UTC", "start": _text(start), "end": _text(end)},
        },
    ]
    return {"properties": {"enabled": True, "targetResourceUri": scale_set, "profiles": profiles}}


def _profile(name: str, most: str) -> dict[str, Any]:
    return {
        "name": name,
        "capacity": {"minimum": "0", "maximum": most, "default": "0"},
        "rules": [],
    }


def _text(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
