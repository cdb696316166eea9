"""What a rehearsal needs before it can run: tools, base image, Azurite, Python packages."""
