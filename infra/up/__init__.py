"""`make up` and `make down`: pulumi, and recovery from a run of it that was killed."""
