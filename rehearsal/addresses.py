"""The addresses that a rehearsal uses besides those that the stack declares."""

from __future__ import annotations

METADATA_ADDRESS = "169.254.169.254"
"""Azure's instance metadata service."""
BLOB_ADDRESS = "100.64.0.10"
"""Azurite. Machines find it by the storage account's real name."""
MANAGEMENT_ADDRESS = "100.64.0.11"
"""The stand-in for management.azure.com. Machines find it by that name."""
INTERNET = "198.51.100.128/25"
"""Everything outside the stack: the administrator and a stranger (RFC 5737)."""
INTERNET_GATEWAY = "198.51.100.129"
ADMIN_ADDRESS = "198.51.100.135"
STRANGER_ADDRESS = "198.51.100.199"
MLFLOW_ADDRESS = "198.51.100.150"
"""An MLflow server that somebody else runs."""
PUBLIC_ADDRESSES = "198.51.100.0/25"
"""Public addresses are taken from here (RFC 5737)."""
EXISTING_VNET = "10.43.0.0/16"
"""The virtual network of somebody else."""
EXISTING_SUBNETS = ("10.43.0.0/24", "10.43.1.0/24")
ALL = (
    *("10.42.0.0/24", "10.42.1.0/24", *EXISTING_SUBNETS, INTERNET, PUBLIC_ADDRESSES),
    *(f"{one}/32" for one in (BLOB_ADDRESS, MANAGEMENT_ADDRESS, METADATA_ADDRESS)),
)
"""Networks that must be free on this machine. The first two are the stack's default subnets."""
