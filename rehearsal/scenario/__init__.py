"""What is done to the cluster, what is expected, and what was seen."""
