"""Saves results to Blob storage and restores them."""
