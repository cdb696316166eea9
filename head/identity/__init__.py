"""What needs the machine's identity: its service does a closed list of it for Ray's user."""
