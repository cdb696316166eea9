"""Ray's autoscaler on the head, with the workers' scale set as its node provider."""
