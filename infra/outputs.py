"""Stack outputs: how to connect, the cost, the place of the results."""

from typing import Any

import pulumi

from infra.config.cost import cost_table, hourly, per_day, per_hour, per_up, prices_from
from infra.config.stack_settings import StackSettings
from infra.ports import DASHBOARD, MLFLOW
from infra.stack.head import Head
from infra.stack.machine_environment import Prerequisites
from infra.stack.results_account import CONTAINER
from infra.stack.workers import Workers

TOKEN_FILE = "/etc/volley/ray-token"
FIRST_EXPERIMENT = 1
"""Id of the experiment that the training creates in a new MLflow database."""
README = """\
# volley: {stack}

| | |
|---|---|
| Shell on the head | `{ssh}` |
| MLflow and the Ray dashboard | `{tunnel}`, then {mlflowCharts} and {dashboard} |
| The dashboard's token | `{dashboardToken}` |
| Follow all experiments | `{ssh} sudo journalctl -fu experiments` |
| Follow a boot | `{ssh} sudo journalctl -f` |
| Env runners | {arithmetic} |
| Image | {image} |
| Results | {resultsUrl} |

`pulumi destroy` {fate}. Another stack continues with them after
`pulumi config set resultsAccountId {resultsAccountId}`.

## Estimated cost until `pulumi destroy`

{cost}

The results account is billed after that too, until you delete it.
"""


def outputs(
    prerequisites: Prerequisites,
    num_env_runners: int,
    head: Head,
    workers: Workers,
    host_key: pulumi.Output[str],
) -> dict[str, Any]:
    settings, naming = prerequisites.settings, prerequisites.naming
    network, identities = prerequisites.network, prerequisites.identities
    results = prerequisites.results
    login = pulumi.Output.concat(settings.admin_username, "@", head.ssh_address)
    ssh = host_key.apply(ssh_command)
    forward = " ".join(f"-L {port}:127.0.0.1:{port}" for port in (MLFLOW, DASHBOARD))
    tracking_uri = (settings.mlflow_tracking_uri or f"http://127.0.0.1:{MLFLOW}").rstrip("/")
    # On an existing server the experiment may have any id.
    experiment = "" if settings.mlflow_tracking_uri else f"/{FIRST_EXPERIMENT}/runs"
    charts = f"{tracking_uri}/#/experiments{experiment}?compareRunsMode=CHART"
    values = {
        "resourceGroup": naming.group,
        "ssh": pulumi.Output.concat(ssh, " ", login),
        "headName": head.vm.name,
        "headId": head.vm.id,
        "headVmId": head.vm.vm_id,
        "headIdentityId": identities.head.id,
        "headSubnetId": network.head_subnet,
        "workersId": workers.scale_set.id,
        "workersIdentityId": identities.workers.id,
        "workerSubnetId": network.worker_subnet,
        "headHostKey": host_key,
        "tunnel": pulumi.Output.concat(ssh, " -N ", forward, " ", login),
        "mlflow": tracking_uri,
        "mlflowCharts": f"{charts}&workflowType=machine_learning",
        "dashboard": f"http://127.0.0.1:{DASHBOARD}",
        "dashboardToken": pulumi.Output.concat(ssh, " ", login, " sudo cat ", TOKEN_FILE),
        "resultsUrl": pulumi.Output.concat(
            "https://", results.account_name, f".blob.core.windows.net/{CONTAINER}"
        ),
        "resultsAccountId": results.account_id,
        "image": head.image,
        "envRunners": num_env_runners,
        "pricePerHourUsd": round(per_hour(settings), 4),
        "pricePerHourAsleepUsd": round(hourly(settings).asleep, 4),
        "pricePerDayUsd": round(per_day(settings), 2),
        "pricePerUpUsd": round(per_up(settings), 2),
        "pricesFrom": f"estimated, {prices_from(settings)}",
    }
    kept = settings.keep_results or settings.results_account_id
    fate = "keeps the results" if kept else "deletes the results too"
    readme = pulumi.Output.all(**values).apply(
        lambda resolved: README.format(
            stack=pulumi.get_stack(),
            arithmetic=arithmetic(settings, num_env_runners),
            fate=fate,
            cost=cost_table(settings),
            **resolved,
        )
    )
    return {**values, "readme": readme}


def ssh_command(host_key: str) -> str:
    """Returns ssh for a shell, with options that accept this host key alone.

    Without a key (the head's software has not been installed) it is plain ssh.
    """
    if not host_key:
        return "ssh"
    # OpenSSH replaces %H with the address; the command is in every system's /usr/bin.
    known = f'-o "KnownHostsCommand=/usr/bin/env echo %H {host_key}"'
    return f"ssh {known} -o UserKnownHostsFile=/dev/null -o StrictHostKeyChecking=yes"


def arithmetic(settings: StackSettings, num_env_runners: int) -> str:
    """Shows how the number of env runners follows from the vCPUs: 4 + 8 - 1 = 11."""
    if settings.num_env_runners:
        return f"{num_env_runners} (numEnvRunners)"
    head, workers = settings.head.vcpus, settings.max_workers * settings.worker.vcpus
    if num_env_runners != head + workers - 1:
        return f"{num_env_runners} ({settings.experiment})"
    text = f"{head} + {workers} - 1 = {num_env_runners}"
    if settings.min_workers == settings.max_workers:
        return text
    # Training may start with fewer workers.
    return f"{text} with all {settings.max_workers} workers"
