"""The stack: a Ray cluster with the settings of its configuration."""

from functools import partial
from pathlib import Path

import pulumi

from infra.config.ask_azure import ask_azure
from infra.config.read_stack import read_settings, stack_config
from infra.config.unused_results import tell_unused_results
from infra.stack.naming import resource_prefix
from infra.stack.ray_cluster import RayCluster


def main() -> None:
    name = f"{pulumi.get_project()}-{pulumi.get_stack()}"
    ask = partial(ask_azure, prefix=resource_prefix(name))
    settings = read_settings(stack_config(), Path(pulumi.get_root_directory()), ask)
    cluster = RayCluster(name, settings)
    if settings.check_quota and pulumi.runtime.is_dry_run():  # Once for each `up`.
        tell_unused_results(pulumi.get_project(), settings.results_account_id)
    for name, value in cluster.outputs.items():
        pulumi.export(name, value)


if __name__ == "__main__":
    main()
