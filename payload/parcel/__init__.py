"""What travels to a cluster: the payload, and the files that an experiment names."""
