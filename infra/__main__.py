"""The stack: network, results account, identities, head, workers and training."""

import sys
from pathlib import Path
from typing import Any

import pulumi
from pulumi_azure_native import resources

from infra.boot.cloud_config import CustomDataTooLargeError
from infra.config.check_experiment import needs_of_every_machine
from infra.config.quota import QuotaError, check_quota
from infra.config.read_stack import ConfigError, read_settings, stack_config
from infra.config.stack_settings import StackSettings
from infra.config.unused_results import tell_unused_results
from infra.outputs import outputs
from infra.stack.autoscale import Autoscale
from infra.stack.head import Head
from infra.stack.head_software import HeadSoftware
from infra.stack.identity import Identities
from infra.stack.machine_environment import Prerequisites, check_custom_data
from infra.stack.naming import Naming, stack_prefix, tags, without_type_aliases
from infra.stack.network import Network
from infra.stack.payload_code import PayloadCode
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
            if pulumi.runtime.is_dry_run():  # Once for each `up`.
                tell_unused_results(pulumi.get_project(), settings.results_account_id)
    except (ConfigError, CustomDataTooLargeError, ScriptTooLargeError, QuotaError) as error:
        pulumi.log.error(str(error))
        sys.exit(1)
    if needs := needs_of_every_machine(settings, root):
        pulumi.log.info(needs)
    for name, value in declare(settings, script).items():
        pulumi.export(name, value)


def declare(settings: StackSettings, script: TrainingScript) -> dict[str, Any]:
    """Declares the whole stack, with the script that starts its training; returns its outputs."""
    pulumi.runtime.register_stack_transformation(without_type_aliases)
    prefix = stack_prefix()
    group = resources.ResourceGroup(prefix, location=settings.location, tags=tags(settings))
    naming = Naming(prefix, settings.location, tags(settings), group)

    network = Network(naming, settings)
    results = ResultsAccount(naming, settings, network)
    identities = Identities(naming)
    grants = identities.grant(results)
    if settings.has_autoscaler:
        grants += identities.grant_scaling(settings)
    if settings.container_registry_id:
        grants += identities.grant_pulling(settings.container_registry_id)
    prerequisites = Prerequisites(naming, settings, network, results, identities, grants)
    head = Head(prerequisites)
    workers = Workers(prerequisites, head)
    lease: pulumi.Input[str] = ""
    if settings.has_autoscaler:
        autoscale = Autoscale(naming, settings, workers, after=[])
        identities.grant_lease(autoscale.setting.id)
        lease = autoscale.setting.id
    software = HeadSoftware(naming, settings, head, workers, lease)
    if not settings.has_autoscaler:
        # A head that has had a lease before would renew it until then.
        Autoscale(naming, settings, workers, after=[software.run_command])
    code = PayloadCode(naming, head, script.payload, [software.run_command])
    Training(naming, settings, script, head, code.run_commands)

    return outputs(naming, settings, script.num_env_runners, head, software.host_key, results)


if __name__ == "__main__":
    main()
