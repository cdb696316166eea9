"""Measurements: this trainer beside stock RLlib and the emulator, and time to learn."""
