"""The language of an experiment: its settings, their old names, and what fits on a cluster."""
