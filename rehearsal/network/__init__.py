"""The declared network: bridges, and nftables rules for NSGs, NAT and firewalls."""
