"""The scenario `stacks`: stacks that use what somebody has already, and one without workers."""

from __future__ import annotations

from rehearsal.backend import Backend
from rehearsal.scenario import head_alone, mlflow_elsewhere, search, second_life, stack_changes
from rehearsal.scenario.context import Context
from rehearsal.scenario.existing_network import make_existing_network
from rehearsal.scenario.outcomes import Outcomes
from rehearsal.scenario.unsupported_properties import unsupported_properties

HEAD_ALONE = "no worker: the head trains, and saves a checkpoint"
SECOND_LIFE = "in subnets of somebody else: the same run, by the private endpoint only"
SEARCH = "an experiment with a search space is searched, a nested MLflow run per trial"
MLFLOW_ELSEWHERE = "the head runs none, the metrics arrive there"


def run_stacks(context: Context, outcomes: Outcomes) -> list[str]:
    """Runs all acts, in order; without the first cluster there is nothing to continue with.

    Returns:
        What was declared and not rehearsed.
    """
    act = outcomes.act
    if not act("head alone", HEAD_ALONE, head_alone.head_alone, context):
        return []
    declared = Backend().resources()
    act("destroy", "nothing but the results", stack_changes.destroy, context)
    existing = make_existing_network(Backend())
    before = Backend().resources()
    if act("second life", SECOND_LIFE, second_life.second_life, context, existing):
        after = Backend().resources()
        declared |= {key: one for key, one in after.items() if key not in before}
        act("search", SEARCH, search.search, context)
        act("mlflow elsewhere", MLFLOW_ELSEWHERE, mlflow_elsewhere.mlflow_elsewhere, context)
    act("destroy", "all that was there before, as it was", second_life.destroy, context, before)
    return unsupported_properties(declared)
