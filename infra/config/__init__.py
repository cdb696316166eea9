"""The stack's configuration: its keys, VM sizes with prices, and every check."""
