"""Drivers, which declare the stack: the pulumi CLI, or the program in this process."""
