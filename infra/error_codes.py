"""Error codes by which the stack's program tells `make up` what to do before it tries again."""

WORKERS_HAVE_CHANGED = "WorkersHaveChanged"
"""The number of workers in the stack's state differs from Azure's."""
