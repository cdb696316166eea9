"""Environments: how an id is found, what an environment needs, and what the policy sees of it."""
