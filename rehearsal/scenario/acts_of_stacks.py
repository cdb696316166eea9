"""The acts of the scenario `stacks`, in order: no workers, kept results, existing resources."""

from __future__ import annotations

from rehearsal.backend import Backend
from rehearsal.scenario import head_alone, mlflow_elsewhere, search_act, second_life, stack_changes
from rehearsal.scenario.context import Context
from rehearsal.scenario.existing_network import make_existing_network
from rehearsal.scenario.outcomes import Outcomes
from rehearsal.scenario.unsupported_properties import unsupported_properties

HEAD_ALONE = "no worker: the head trains, and saves a checkpoint"
SECOND_LIFE = "in somebody else's subnets: the same run, by the private endpoint only"
SEARCH = "an experiment with a search space has a nested MLflow run per trial"
MLFLOW_ELSEWHERE = "the head runs no MLflow, the metrics arrive there"


def run_stacks(context: Context, outcomes: Outcomes) -> list[str]:
    """Runs the acts; if the first one fails, there are no results to continue with.

    Returns:
        What was declared and not rehearsed.
    """
    act = outcomes.act
    if not act("head alone", HEAD_ALONE, head_alone.head_alone, context):
        return []
    declared = Backend().resources()
    act("destroy", "only the results are left", stack_changes.destroy, context)
    existing = make_existing_network(Backend())
    before = Backend().resources()
    if act("second life", SECOND_LIFE, second_life.second_life, context, existing):
        after = Backend().resources()
        declared |= {key: resource for key, resource in after.items() if key not in before}
        act("search", SEARCH, search_act.search, context)
        act("mlflow elsewhere", MLFLOW_ELSEWHERE, mlflow_elsewhere.mlflow_elsewhere, context)
    act("destroy", "all from before is unchanged", second_life.destroy, context, before)
    return unsupported_properties(declared)
