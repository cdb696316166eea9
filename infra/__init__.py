"""The Pulumi program that declares a Ray cluster on Azure."""
