"""The queue: experiments run as Ray jobs and share the cluster."""
