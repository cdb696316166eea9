"""Where the head keeps what it works on."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(os.environ.get("VOLLEY_ROOT", "/"))
"""Tests run a head below a folder."""
PROC = ROOT / "proc"
CGROUPS = ROOT / "sys/fs/cgroup/system.slice"
BOOT_LOG = ROOT / "var/log/cloud-init-output.log"
PYTHON = ROOT / "opt/volley/venv/bin/python"
"""Of the cluster's Python environment. volley-head runs on the system's."""
SOFTWARE = ROOT / "usr/local/lib/volley/software"
"""Holds this package; infra/boot/install_head.sh replaces it."""

HOME = ROOT / "var/lib/volley"
EXPERIMENTS = HOME / "experiments"
"""A folder for each experiment; see queue/store.py."""
RUNS = HOME / "runs"
"""Below it, a folder for each experiment's key, with its run folders."""
PACKAGES = HOME / "packages"
"""The pip_packages of experiments, installed once."""
SAVED = HOME / "saved-at"
"""Its modification time is that of the last successful save of the results."""
CLUSTER_STATE = EXPERIMENTS / ".cluster.json"
"""The queue's last view of Ray; see queue/cluster_state.py."""
CLUSTER_SETTINGS = HOME / "cluster-settings.json"
"""See cluster_settings.py."""
WORKERS = HOME / "cluster-workers.json"
"""The autoscaler's view of the workers; see autoscaler/scale_set_provider.py."""
FIRST_WORKERS = HOME / "first-workers"
"""The operation by which Azure creates the first workers; see autoscaler/first_workers.py."""
SLEEP = HOME / "sleep.json"
"""How near the cluster is to sleep; see sleep_record.py."""
SLEEP_REQUEST = HOME / "sleep-request.json"
"""A person's request to sleep: {"boot", "time", "now"}."""
COST = HOME / "cost.json"
"""What the cluster has cost; see sleep/spending.py."""
