"""Where the head keeps what it works on."""

from __future__ import annotations

from pathlib import Path

HOME = Path("/var/lib/volley")
EXPERIMENTS = HOME / "experiments"
"""A folder for each experiment; see experiment_store.py."""
RUNS = HOME / "runs"
"""Below it, a folder for each experiment's key, with its run folders."""
PACKAGES = HOME / "packages"
"""What pip_packages of experiments name, installed once."""
SAVED = HOME / "saved-at"
"""Its modification time is that of the last successful save of the results."""
CLUSTER = EXPERIMENTS / ".cluster.json"
"""What the queue has seen last: {"time", "nodes", "drivers"}; drivers: how many Ray jobs are
no experiments'."""
CLUSTER_SETTINGS = HOME / "cluster-settings.json"
"""See cluster_settings.py."""
WORKERS = HOME / "cluster-workers.json"
"""What the autoscaler knows of the workers: Workers in infra/boot/autoscaler/cluster_workers.py."""
SLEEP = HOME / "sleep.json"
"""How near the cluster is to sleep: SleepRecord in infra/boot/sleep/sleep_record.py."""
SLEEP_REQUEST = HOME / "sleep-request.json"
"""That a person wants it to sleep: {"boot", "time", "now"}."""
COST = HOME / "cost.json"
"""What the cluster has cost: Cost in infra/boot/sleep/cost.py."""
