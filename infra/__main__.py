"""The cluster at a glance: who may reach whom, who keeps what, and what trains."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pulumi
from pulumi_azure_native import resources

from infra.common import Common, tags
from infra.foundation import Foundation
from infra.head import Head
from infra.identity import Identities
from infra.network import Network
from infra.outputs import outputs
from infra.results import Results
from infra.settings import ConfigError, StackSettings, read_settings, stack_config
from infra.training import Training
from infra.workers import Workers

ROOT = Path(__file__).parents[1]


def declare(settings: StackSettings) -> dict[str, Any]:
    """Declares the whole stack; returns its outputs."""
    prefix = f"{pulumi.get_project()}-{pulumi.get_stack()}"
    group = resources.ResourceGroup(prefix, location=settings.location, tags=tags(settings))
    common = Common(prefix, settings.location, tags(settings), group.name)

    network = Network(common, settings)
    results = Results(common, settings, network)
    identities = Identities(common)
    grants = identities.grant(results)
    foundation = Foundation(common, settings, network, results, identities, grants)
    head = Head(foundation)
    workers = Workers(foundation, head)
    Training(common, settings, ROOT, head, workers)

    return outputs(settings, head, results)


def main() -> None:
    try:
        settings = read_settings(stack_config(), ROOT)
    except ConfigError as error:
        pulumi.log.error(str(error))
        sys.exit(1)
    for name, value in declare(settings).items():
        pulumi.export(name, value)


if __name__ == "__main__":
    main()
