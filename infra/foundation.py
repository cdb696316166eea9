"""What every machine stands on: declared before any of them boots."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi

from infra.common import Common
from infra.config.settings import StackSettings
from infra.identity import Identities
from infra.network import Network
from infra.results_account import ResultsAccount


@dataclass(frozen=True)
class Foundation:
    """Passed to the head and to the workers."""

    common: Common
    settings: StackSettings
    network: Network
    results: ResultsAccount
    identities: Identities
    grants: list[pulumi.Resource]
    """The identities' roles: a machine that boots without its own boots in vain."""
