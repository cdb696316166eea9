"""The command `volley`: trains on this machine, and operates the cluster by its stack's outputs.

Operating it needs neither Ray nor torch, and a login at Azure only to start the head. Nothing of
this package travels to the cluster.
"""
