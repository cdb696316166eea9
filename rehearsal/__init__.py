"""The declared cluster, run for real on one machine."""
