"""The acts on the cluster, with what each expects and what it saw."""
