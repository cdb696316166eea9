"""volley's payload: distributed IMPALA on RLlib, from a laptop to a cluster."""

__version__ = "0.1.0"
"""Defined here, not in package metadata, which Ray does not carry to a cluster."""
