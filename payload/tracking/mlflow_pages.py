"""Addresses of MLflow's pages. Without the workflow type they open as pages of language models."""

UI_HOST, UI_PORT = "127.0.0.1", 5000
"""Of `volley ui` and of MLflow on a cluster's head."""
_TRAINING = "workflowType=machine_learning"


def run_page(server: str, experiment_id: str, run_id: str) -> str:
    """Returns the page with a run's charts; `server` is an address, http://..."""
    return f"{server}/#/experiments/{experiment_id}/runs/{run_id}/model-metrics?{_TRAINING}"


def experiment_page(server: str, experiment_id: str) -> str:
    """Returns the page with the charts of all runs of an experiment."""
    return f"{server}/#/experiments/{experiment_id}/runs?{_TRAINING}&compareRunsMode=CHART"
