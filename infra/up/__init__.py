"""`make up` and `make down`: they run pulumi and recover from a killed run."""
