"""Azure's instance metadata service: documents, tokens and scheduled events of each machine."""
