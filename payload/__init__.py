"""volley's payload: distributed IMPALA on RLlib, from a laptop to a cluster."""

__version__ = "0.1.0"
"""Here and not in package metadata: Ray carries the package to a cluster without it."""
