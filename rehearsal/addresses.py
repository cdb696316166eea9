"""The addresses that a rehearsal uses, besides the stack's."""

from __future__ import annotations

METADATA_ADDRESS = "169.254.169.254"
BLOB_ADDRESS = "100.64.0.10"
"""Azurite's address. Machines resolve the storage account's real name to it."""
MANAGEMENT_ADDRESS = "100.64.0.11"
"""The address of the stand-in for management.azure.com. Machines resolve that name to it."""
INTERNET = "198.51.100.128/25"
"""Everything outside the stack, such as the administrator and a stranger (RFC 5737)."""
INTERNET_GATEWAY = "198.51.100.129"
ADMIN_ADDRESS = "198.51.100.135"
STRANGER_ADDRESS = "198.51.100.199"
MLFLOW_ADDRESS = "198.51.100.150"
"""Somebody else's MLflow server."""
REGISTRY_ADDRESS = "198.51.100.151"
"""A registry of container images."""
CHAT_ADDRESS = "198.51.100.152"
"""A chat that is notified when experiments end."""
LOGS_ADDRESS, LOGS_HOST = "198.51.100.153", "stand-in.eastus-1.ingest.monitor.azure.com"
"""The stand-in for Azure's Logs Ingestion API, and its name: the one of every data collection
endpoint. Machines resolve it to the address."""
PUBLIC_ADDRESSES = "198.51.100.0/25"
"""Public addresses are taken from here (RFC 5737)."""
EXISTING_VNET = "10.43.0.0/16"
"""Somebody else's virtual network."""
EXISTING_SUBNETS = ("10.43.0.0/24", "10.43.1.0/24")
ALL = (
    "10.42.0.0/24",
    "10.42.1.0/24",
    *EXISTING_SUBNETS,
    INTERNET,
    PUBLIC_ADDRESSES,
    f"{BLOB_ADDRESS}/32",
    f"{MANAGEMENT_ADDRESS}/32",
    f"{METADATA_ADDRESS}/32",
)
"""Networks that must be free on this machine. The first two are the stack's default subnets."""
