"""A training run: the loop, its progress, checkpoints, run folder and panel."""
