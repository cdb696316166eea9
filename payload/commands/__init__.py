"""The commands of this machine: their options, and what each does before and after its work."""
