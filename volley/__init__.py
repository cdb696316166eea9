"""The laptop's side of volley: operates the cluster over SSH, by the stack's outputs.

Needs neither Ray nor torch, and a login at Azure only to start the head. Never travels to the
cluster.
"""
