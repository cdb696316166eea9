"""The laptop's side of volley: operates the cluster over SSH, by the stack's outputs.

Needs neither Ray nor torch nor an Azure login. Never travels to the cluster.
"""
