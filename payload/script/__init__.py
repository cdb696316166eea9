"""A script of a user's own: any Ray program, on this machine and as a job of the cluster.

`payload/experiment/script.py` reads what it needs. Here `environment.py` has what it finds,
`child_process.py` runs it and returns why it ended, and `__main__.py` is in the script's process,
around the script.
"""
