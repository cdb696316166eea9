"""The stack's components, a file each."""

WORKERS_HAVE_CHANGED = "WorkersHaveChanged"
"""In an update's error: Azure has another number of workers than the stack's state."""
