"""The stack's components, a file each."""
