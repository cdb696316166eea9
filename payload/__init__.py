"""volley's payload: distributed IMPALA on RLlib, from a laptop to a cluster."""
