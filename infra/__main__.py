"""The stack: network, results account, identities, head, workers and training."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pulumi
from pulumi_azure_native import resources

from infra.boot.cloud_config import CustomDataTooLargeError
from infra.config.check_experiment import said_of_needs
from infra.config.quota import QuotaError, check_quota
from infra.config.read_stack import ConfigError, read_settings, stack_config
from infra.config.stack_settings import StackSettings
from infra.outputs import outputs
from infra.stack.cpu_autoscale import CpuRules
from infra.stack.head import Head
from infra.stack.head_software import HeadSoftware
from infra.stack.identity import Identities
from infra.stack.machine_environment import check_custom_data
from infra.stack.naming import Common, stack_prefix, tags
from infra.stack.network import Network
from infra.stack.prerequisites import Foundation
from infra.stack.results_account import ResultsAccount
from infra.stack.run_command_script import ScriptTooLargeError
from infra.stack.training import Training, TrainingScript, training_script
from infra.stack.workers import Workers


def main() -> None:
    # The folder of Pulumi.yaml.
    root = Path(pulumi.get_root_directory())
    try:
        settings = read_settings(stack_config(), root)
        check_custom_data(settings)
        script = training_script(settings, root)
        if settings.check_quota:
            check_quota(settings, stack_prefix())
    except (ConfigError, CustomDataTooLargeError, ScriptTooLargeError, QuotaError) as error:
        pulumi.log.error(str(error))
        sys.exit(1)
    if said := said_of_needs(settings, root):
        pulumi.log.info(said)
    for name, value in declare(settings, script).items():
        pulumi.export(name, value)


def declare(settings: StackSettings, script: TrainingScript) -> dict[str, Any]:
    """Declares the whole stack, with the script that starts its training; returns its outputs."""
    prefix = stack_prefix()
    group = resources.ResourceGroup(prefix, location=settings.location, tags=tags(settings))
    common = Common(prefix, settings.location, tags(settings), group)

    network = Network(common, settings)
    results = ResultsAccount(common, settings, network)
    identities = Identities(common)
    grants = identities.grant(results)
    if settings.has_autoscaler:
        grants += identities.grant_scaling(settings)
    foundation = Foundation(common, settings, network, results, identities, grants)
    head = Head(foundation)
    workers = Workers(foundation, head)
    software = HeadSoftware(common, settings, head, workers)
    if not settings.has_autoscaler:
        CpuRules(common, settings, workers)
    Training(common, settings, script, head, [software.run_command])

    return outputs(common, settings, script.num_env_runners, head, results)


if __name__ == "__main__":
    main()
