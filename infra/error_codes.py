"""Error codes by which the stack's program tells `make up` what to do before it tries again."""

WORKERS_HAVE_CHANGED = "WorkersHaveChanged"
"""The stack's state has another number of workers than Azure."""
