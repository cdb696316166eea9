"""What must exist before a machine boots: network, results account, identities and their roles."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi

from infra.config.stack_settings import StackSettings
from infra.stack.identity import Identities
from infra.stack.naming import Naming
from infra.stack.network import Network
from infra.stack.results_account import ResultsAccount


@dataclass(frozen=True)
class Prerequisites:
    """Passed to the head and to the workers."""

    naming: Naming
    settings: StackSettings
    network: Network
    results: ResultsAccount
    identities: Identities
    grants: list[pulumi.Resource]
    """Role assignments: a machine depends on them."""
