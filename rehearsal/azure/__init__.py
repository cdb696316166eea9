"""The stand-in for Azure, which answers Pulumi and the machines."""
