"""Azure's stand-in: what it answers to Pulumi and to the machines."""
