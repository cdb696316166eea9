"""The declared machines: containers that boot real systemd and cloud-init."""
