"""The software of the head beyond its boot: queue, command, sleep, autoscaler, results.

One wheel, which a run command installs: a change of it replaces no machine. volley-head and
first_workers run on the system's Python, so the whole package keeps to Python 3.10.
"""
