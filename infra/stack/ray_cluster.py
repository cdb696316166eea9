"""The whole cluster as one component, which other programs can import."""

from functools import partial
from pathlib import Path
from typing import Any

import pulumi

from infra.config.ask_azure import ask_azure
from infra.config.check_experiment import needs_of_every_machine
from infra.config.check_rights import check_rights
from infra.config.quota import check_quota
from infra.config.read_stack import checked
from infra.config.stack_settings import StackSettings
from infra.outputs import outputs
from infra.stack.autoscale import Autoscale
from infra.stack.budget import Budget
from infra.stack.diagnostics import Diagnostics
from infra.stack.head import Head
from infra.stack.head_software import HeadSoftware
from infra.stack.identity import Identities
from infra.stack.machine_environment import Prerequisites, check_custom_data
from infra.stack.naming import naming_of, resource_prefix
from infra.stack.network import Network
from infra.stack.payload_code import PayloadCode
from infra.stack.results_account import ResultsAccount
from infra.stack.training import Training, training_script
from infra.stack.workers import Workers


class RayCluster(pulumi.ComponentResource):
    """A Ray cluster that trains: network, results account, identities, head, workers, training.

    Its parts are attributes, whose resources other resources can name.
    """

    outputs: dict[str, Any]
    """How to connect, the cost and the place of the results: docs/azure.md, Outputs. `volley`
    operates the cluster of a stack that exports them."""

    def __init__(
        self,
        name: str,
        settings: StackSettings,
        root: Path | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """
        Args:
            name: The start of all names in Azure; two clusters of one program need two.
            root: Folder to which paths in the settings are relative. Default: that of Pulumi.yaml.

        Raises:
            pulumi.RunError: A setting is wrong, a size is restricted, Azure's quota is too small,
                or what must travel is too large; nothing has been created.
        """
        root = root or Path(pulumi.get_root_directory())
        prefix = resource_prefix(name)
        settings = checked(settings, root, partial(ask_azure, prefix=prefix))
        check_custom_data(settings)
        script = training_script(settings, root)
        if settings.check_quota:
            check_rights(settings)
            check_quota(settings, prefix)
        if needs := needs_of_every_machine(settings, root):
            pulumi.log.info(needs)
        opts = pulumi.ResourceOptions.merge(
            pulumi.ResourceOptions(transformations=[self._without_type_aliases]), opts
        )
        super().__init__("volley:infra:RayCluster", prefix, opts=opts)

        naming = naming_of(prefix, settings, self)
        network = Network(naming, settings)
        results = ResultsAccount(naming, settings, network)
        identities = Identities(naming, settings)
        grants = identities.grant(results)
        if settings.has_autoscaler:
            grants += identities.grant_scaling(settings)
        if settings.container_registry_id:
            grants += identities.grant_pulling(settings.container_registry_id)
        diagnostics, journals_url = None, pulumi.Output.from_input("")
        if settings.log_analytics_workspace_id:
            diagnostics = Diagnostics(naming, settings.log_analytics_workspace_id)
            journals_url = diagnostics.journals_url
            grants += identities.grant_logging(diagnostics.rule_id)
        prerequisites = Prerequisites(
            naming, settings, network, results, identities, grants, journals_url
        )
        head = Head(prerequisites)
        workers = Workers(prerequisites, head)
        if diagnostics is not None:
            diagnostics.send_metrics("head", head.vm)
            diagnostics.send_metrics("workers", workers.scale_set)
        lease: pulumi.Input[str] = ""
        if settings.has_autoscaler:
            autoscale = Autoscale(naming, settings, workers, after=[])
            identities.grant_lease(autoscale.setting.id)
            lease = autoscale.setting.id
        software = HeadSoftware(naming, settings, head, workers, lease)
        if not settings.has_autoscaler:
            # A head that has had a lease before would renew it until then.
            Autoscale(naming, settings, workers, after=[software.run_command])
        if settings.contact_emails:
            Budget(naming, settings)
        code = PayloadCode(naming, head, script.payload, [software.run_command])
        Training(naming, settings, script, head, code.run_commands)

        self.network, self.results, self.identities = network, results, identities
        self.head, self.workers = head, workers
        self.outputs = outputs(
            prerequisites, script.num_env_runners, head, workers, software.host_key
        )
        self.register_outputs(self.outputs)

    def _without_type_aliases(
        self, args: pulumi.ResourceTransformationArgs
    ) -> pulumi.ResourceTransformationResult:
        """Returns a resource as declared, without its type's names at explicit API versions.

        azure-native lists up to 60 such names a type, for states that were written by programs that
        name an API version (azure-native:network/v20230201:Subnet). No volley stack has one: the
        program declares the types without a version, whose names stay when azure-native is
        upgraded.
        """
        options = pulumi.ResourceOptions.merge(args.opts, None)
        # A stack made before there was this component has its components as its own children.
        in_stack = pulumi.Alias(parent=pulumi.ROOT_STACK_RESOURCE)
        options.aliases = [in_stack] if options.parent is self else None
        return pulumi.ResourceTransformationResult(args.props, options)
