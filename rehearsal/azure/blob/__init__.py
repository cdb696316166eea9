"""Storage accounts and their blobs: Azurite behind a proxy that checks roles and firewalls."""
